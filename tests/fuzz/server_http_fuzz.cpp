// Any bytes as an HTTP connection: what is a request is routed, validated and prepared as the server would,
// without sockets, threads or a model. Every accepted generation must obey the contract with the engine.
// Bytes that begin with '/' are a path, a line break and a body: so the fuzzer gets past the framing.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/log.h"
#include "server/chat_request.h"
#include "server/completion_request.h"
#include "server/error_response.h"
#include "server/messages_request.h"
#include "server/request_reader.h"
#include "server/responses_request.h"
#include "server/tokenize_request.h"

namespace {

using namespace godwit;
using namespace godwit::server;

constexpr int64_t kContext = 512;

class NoService final : public engine::Service {
 public:
  NoService() {
    info_.context = kContext;
    info_.stop_ids = {259};
  }
  Result<void> submit(engine::Request) override { return make_error(ErrorCode::unavailable, "", "none"); }
  const engine::Info& info() const override { return info_; }
  engine::Status status() const override { return {}; }
  void drain(int64_t) override {}
  void flush_cache(std::function<void(const Result<engine::Flushed>&)> done) override {
    done(engine::Flushed{});
  }

 private:
  engine::Info info_;
};

std::string byte_tokenizer() {
  std::string vocab;
  int moved = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    vocab += fmt::format("{}\"\\u{:04x}\":{}", byte == 0 ? "" : ",", printable ? byte : moved++, byte);
  }
  return R"({"added_tokens":[{"id":259,"content":"<|user|>","special":true},{"id":260,"content":"<think>"},)"
         R"({"id":261,"content":"</think>"},{"id":262,"content":"<tool_call>"}],"pre_tokenizer":{"type":"Sequence",)"
         R"("pretokenizers":[{"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?)"
         R"(\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},)"
         R"("behavior":"Isolated"},{"type":"ByteLevel","use_regex":false}]},"decoder":{"type":"ByteLevel"},)"
         R"("model":{"type":"BPE","vocab":{)" +
         vocab + R"(},"merges":[]}})";
}

ServingModel make_model() {
  ServingModel model;
  model.names = {"fuzz"};
  model.tokenizer = tokenizer::Tokenizer::from_json(byte_tokenizer()).value();
  model.control_ids = tokenizer::find_control_ids(*model.tokenizer);
  constexpr std::string_view kTemplate =
      "{% for m in messages %}<|user|>{{ m.content if m.content is string else m.content | tojson }}{% "
      "endfor %}"
      "{% if tools %}{{ tools | tojson }}{% endif %}<think>";
  model.chat_template =
      std::make_shared<const chat::ChatTemplate>(chat::ChatTemplate::parse(kTemplate, "fuzz").value());
  model.service = std::make_shared<NoService>();
  model.grammars = std::make_shared<grammar::GrammarCache>(
      grammar::TokenIndex::make(model.tokenizer, model.tokenizer->size(), model.service->info().stop_ids)
          .value());
  return model;
}

void check_refusal(const Error& error) {
  const int status = info(error.code).http_status;
  if (status < 400 || status >= 500 || error.message.empty()) std::abort();
  if (!parse_json(error_response(error).body).ok()) std::abort();
}

void check(const Result<std::unique_ptr<GenerationPlan>>& plan) {
  if (!plan.ok()) return check_refusal(plan.error());
  const GenerationPlan& p = **plan;
  if (p.requests.empty() || p.requests.size() != p.outputs.size()) std::abort();
  for (const engine::Request& r : p.requests) {
    const auto prompt = static_cast<int64_t>(r.prompt.size());
    const bool sound = prompt >= 1 && r.stop.max_tokens >= 1 && prompt + r.stop.max_tokens <= kContext &&
                       r.stop.min_tokens <= r.stop.max_tokens && r.sampling.temperature >= 0 &&
                       r.sampling.top_p > 0 && r.sampling.top_p <= 1 && r.sampling.top_k >= 0 &&
                       r.sampling.repetition_penalty > 0 &&
                       r.sampling.top_logprobs <= sample::kMaxTopLogprobs;
    if (!sound) std::abort();
  }
  if (!parse_json(p.wire->body({}, {})).ok()) std::abort();
}

void check(const Result<Json>& answer) {
  if (!answer.ok()) return check_refusal(answer.error());
  if (!parse_json(dump_json(*answer, JsonStyle::compact())).ok()) std::abort();
}

// What the handler of the path does with a body.
void prepare(const ServingModel& model, const HttpRequest& request, ResponseStore& store) {
  const std::string_view path = request.path;
  if (path.ends_with("/chat/completions")) return check(prepare_chat(model, request, "fuzz"));
  if (path == "/v1/completions") return check(prepare_completion(model, request, "fuzz"));
  if (path == "/v1/messages") return check(prepare_messages(model, request));
  if (path == "/v1/messages/count_tokens") return check(count_message_tokens(model, request));
  if (path == "/v1/responses") return check(prepare_responses(model, request, store));
  if (path.ends_with("/detokenize")) return check(detokenize_ids(model, request));
  if (path.ends_with("/tokenize")) return check(tokenize_text(model, request));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool is_quiet = (start_logging("off"), true);
  static const ServingModel model = make_model();
  static ResponseStore store(16, 1 << 20);
  (void)is_quiet;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.starts_with('/')) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    HttpRequest request;
    request.method = "POST";
    request.path = normalise_path(std::string_view(bytes).substr(0, end));
    request.body = bytes.substr(std::min(end + 1, bytes.size()));
    request.id = "fuzz";
    prepare(model, request, store);
    return 0;
  }
  while (!bytes.empty()) {
    RequestReader reader(4096, 1 << 20);
    auto fed = reader.feed(bytes);
    if (!fed.ok()) {
      check_refusal(fed.error());
      if (reader.known(bytes).path.empty()) std::abort();
      return 0;
    }
    if (fed->consumed > bytes.size()) std::abort();
    if (!fed->done) return 0;
    bytes.erase(0, fed->consumed);
    HttpRequest request = reader.without_body();
    request.body = reader.take_body();
    if (request.path.empty() || request.id.empty()) std::abort();
    prepare(model, request, store);
  }
  return 0;
}
