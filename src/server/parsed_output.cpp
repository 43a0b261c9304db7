#include "server/parsed_output.h"

#include <algorithm>

namespace godwit::server {
namespace {

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

ParsedOutput::ParsedOutput(ParsedOutputOptions options, std::shared_ptr<DeltaWriter> writer)
    : options_(std::move(options)),
      writer_(std::move(writer)),
      front_(options_.tokenizer, options_.control_ids, options_.ids, options_.parser) {}

size_t ParsedOutput::push(std::span<const engine::Token> tokens, std::span<const engine::TopLogprobs> top,
                          std::string* out) {
  size_t used = 0;
  while (used < tokens.size() && !front_.parser().stopped()) {
    const engine::Token& token = tokens[used];
    if (options_.logprobs && !contains(options_.ids.stop_ids, token.id)) {
      writer_->logprob(front_.parser().in_reasoning(), token, top.empty() ? nullptr : &top[used]);
    }
    front_.push(token.id);
    ++used;
    used_ = front_.completion_tokens();
    settle(out);
  }
  return used;
}

void ParsedOutput::settle(std::string* out) {
  for (const chat::Delta& delta : front_.parser().take()) {
    if (delta.kind == chat::Delta::Kind::reasoning && !options_.include_reasoning) continue;
    writer_->delta(delta, progress(), out);
  }
}

void ParsedOutput::end(engine::FinishReason reason, int32_t stop_id, std::string* out) {
  const bool own = reason == engine::FinishReason::stop && contains(options_.request_stop_ids, stop_id);
  front_.end(reason == engine::FinishReason::length ? chat::EndReason::length : chat::EndReason::stop);
  used_ = front_.completion_tokens();
  settle(out);
  writer_->end(front_.parser().finish(), own ? stop_id : -1, progress(), out);
}

}  // namespace godwit::server
