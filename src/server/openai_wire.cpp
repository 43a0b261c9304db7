#include "server/openai_wire.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "server/error_response.h"

namespace godwit::server {
namespace {

// Members after "choices" of the last chunk and of the body: usage, and the extensions "prefix_cache" (of the
// first prompt) and "timings".
void append_tail(std::string& out, const Outcome& outcome) {
  out += ",\"usage\":";
  append_usage(out, outcome.usage);
  const engine::Start& start = outcome.start;
  fmt::format_to(std::back_inserter(out), R"(,"prefix_cache":{{"cached_tokens":{},"miss":"{}")",
                 start.cached_tokens, cache::miss_name(start.miss));
  if (start.miss == engine::MissReason::first_difference)
    fmt::format_to(std::back_inserter(out), R"(,"first_difference_at":{})", start.first_difference_at);
  out += "}";
  fmt::format_to(std::back_inserter(out),
                 R"(,"timings":{{"queued_ms":{:.3f},"first_token_ms":{:.3f},"tokens_per_second":{:.2f}}}}})",
                 outcome.queued_ms, outcome.first_token_ms, outcome.tokens_per_second);
}

}  // namespace

OpenAiWire::OpenAiWire(std::string head, bool usage_chunk, bool continuous, const Usage& counted)
    : head_(std::move(head)), usage_chunk_(usage_chunk) {
  frame_.prefix = "data: " + head_ + R"(,"choices":[{"index":)";
  frame_.suffix = usage_chunk ? "}],\"usage\":null}\n\n" : "}]}\n\n";
  if (continuous) frame_.counted = &counted;
}

void OpenAiWire::end(std::string& out, const Outcome& outcome) {
  if (usage_chunk_) {
    // The frame's prefix ends inside the first choice; this chunk has none.
    out += "data: ";
    out += head_;
    out += ",\"choices\":[]";
    append_tail(out, outcome);
    out += "\n\n";
  }
  out += "data: [DONE]\n\n";
}

void OpenAiWire::fail(std::string& out, const Error& error) {
  out += "data: ";
  append_error_json(out, error);
  out += "\n\ndata: [DONE]\n\n";
}

std::string OpenAiWire::body(Outputs outputs, const Outcome& outcome) {
  std::string out = head_;
  out += ",\"choices\":[";
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (i > 0) out.push_back(',');
    outputs[i]->append_choice(out);
  }
  out += "]";
  append_tail(out, outcome);
  return out;
}

}  // namespace godwit::server
