#include "server/choice_output.h"

#include <fmt/format.h>

#include <iterator>

namespace godwit::server {

void append_usage(std::string& out, const Usage& u) {
  fmt::format_to(std::back_inserter(out),
                 R"({{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},)"
                 R"("prompt_tokens_details":{{"cached_tokens":{}}},)"
                 R"("completion_tokens_details":{{"reasoning_tokens":{}}}}})",
                 u.prompt_tokens, u.completion_tokens, u.prompt_tokens + u.completion_tokens, u.cached_tokens,
                 u.reasoning_tokens);
}

void ChunkFrame::open(std::string& out, int index) const {
  out += prefix;
  if (index < 10) {
    out.push_back(static_cast<char>('0' + index));
  } else {
    out += std::to_string(index);
  }
}

void ChunkFrame::close(std::string& out, int64_t completion_tokens, int64_t reasoning_tokens) const {
  if (!counted) {
    out += suffix;
    return;
  }
  out += "}],\"usage\":";
  append_usage(out,
               Usage{counted->prompt_tokens, counted->cached_tokens, completion_tokens, reasoning_tokens});
  out += "}\n\n";
}

}  // namespace godwit::server
