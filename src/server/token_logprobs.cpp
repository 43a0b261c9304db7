#include "server/token_logprobs.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "base/json.h"

namespace godwit::server {
namespace {

void append_entry(std::string& out, const tokenizer::Tokenizer& tokenizer, int32_t id, float logprob) {
  out += R"({"token":)";
  append_json_string(out, token_text(tokenizer, id));
  out += R"(,"logprob":)";
  append_logprob(out, logprob);
  out += R"(,"bytes":[)";
  bool first = true;
  for (const char byte : tokenizer.bytes_of(id)) {
    if (!first) out.push_back(',');
    first = false;
    fmt::format_to(std::back_inserter(out), "{}", static_cast<unsigned char>(byte));
  }
  out.push_back(']');
}

}  // namespace

void append_logprob(std::string& out, float value) {
  fmt::format_to(std::back_inserter(out), "{}", std::isfinite(value) ? value : -9999.0f);
}

std::string token_text(const tokenizer::Tokenizer& tokenizer, int32_t id) {
  return tokenizer.decode(std::span(&id, 1));
}

void append_chat_logprob(std::string& out, const tokenizer::Tokenizer& tokenizer, const engine::Token& token,
                         const engine::TopLogprobs* top) {
  append_entry(out, tokenizer, token.id, token.logprob);
  out += R"(,"top_logprobs":[)";
  for (int32_t i = 0; top && i < top->count; ++i) {
    if (i > 0) out.push_back(',');
    append_entry(out, tokenizer, top->ids[i], top->logprobs[i]);
    out.push_back('}');
  }
  out += "]}";
}

void append_completion_alternatives(std::string& out, const tokenizer::Tokenizer& tokenizer,
                                    const engine::Token& token, const engine::TopLogprobs* top) {
  std::vector<std::pair<std::string, float>> entries;
  const auto add = [&](int32_t id, float logprob) {
    std::string text = token_text(tokenizer, id);
    for (auto& [known, value] : entries) {
      if (known != text) continue;
      value = std::max(value, logprob);
      return;
    }
    entries.emplace_back(std::move(text), logprob);
  };
  for (int32_t i = 0; top && i < top->count; ++i) add(top->ids[i], top->logprobs[i]);
  add(token.id, token.logprob);
  out.push_back('{');
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out.push_back(',');
    append_json_string(out, entries[i].first);
    out.push_back(':');
    append_logprob(out, entries[i].second);
  }
  out.push_back('}');
}

}  // namespace godwit::server
