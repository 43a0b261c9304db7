#include "server/completion_output.h"

#include <algorithm>

#include "base/json.h"
#include "server/token_logprobs.h"

namespace godwit::server {
namespace {

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

size_t count_code_points(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

CompletionOutput::CompletionOutput(CompletionOutputOptions options, const ChunkFrame& frame)
    : options_(std::move(options)),
      frame_(frame),
      detokenizer_(options_.tokenizer, options_.skip_special_tokens),
      prompt_detokenizer_(options_.tokenizer, false),
      stop_(options_.stop_strings, options_.include_stop) {}

void CompletionOutput::begin(std::string* out) {
  show(options_.echo);
  if (!options_.scored_prompt.empty()) {
    // Nothing comes before the first id, so it has no probability.
    note_token(options_.scored_prompt[0]);
    logprobs_.values += "null";
    logprobs_.alternatives += "null";
    show(prompt_detokenizer_.push(options_.scored_prompt[0]));
  }
  if (options_.scored_prompt.size() == 1) show(prompt_detokenizer_.flush());
  settle(out);
}

void CompletionOutput::show(std::string_view text) {
  piece_ += text;
  code_points_ += count_code_points(text);
}

void CompletionOutput::push_scores(std::span<const engine::Token> scores,
                                   std::span<const engine::TopLogprobs> top, std::string* out) {
  for (size_t i = 0; i < scores.size(); ++i) {
    note_logprob(scores[i], &top[i]);
    show(prompt_detokenizer_.push(scores[i].id));
    if (++scores_ + 1 == options_.scored_prompt.size()) show(prompt_detokenizer_.flush());
  }
  settle(out);
}

size_t CompletionOutput::push(std::span<const engine::Token> tokens, std::span<const engine::TopLogprobs> top,
                              std::string* out) {
  if (options_.discard) return tokens.size();
  size_t used = 0;
  while (used < tokens.size() && !stopped()) {
    const engine::Token& token = tokens[used];
    ++used_;
    logprob_sum_ += token.logprob;
    // A stop id gives no text but was drawn like any other: evaluations count on one entry for each token.
    if (options_.logprobs) note_logprob(token, top.empty() ? nullptr : &top[used]);
    if (!contains(options_.stop_ids, token.id)) {
      const std::string text = detokenizer_.push(token.id);
      code_points_ += count_code_points(text);
      stop_.push(text, piece_);
    }
    ++used;
    settle(out);
  }
  return used;
}

// The members that every id has; those of its probability follow.
void CompletionOutput::note_token(int32_t id) {
  const char* comma = logprobs_.tokens.empty() ? "" : ",";
  for (std::string* list :
       {&logprobs_.tokens, &logprobs_.values, &logprobs_.alternatives, &logprobs_.offsets})
    *list += comma;
  append_json_string(logprobs_.tokens, token_text(*options_.tokenizer, id));
  logprobs_.offsets += std::to_string(code_points_);
}

void CompletionOutput::note_logprob(const engine::Token& token, const engine::TopLogprobs* top) {
  note_token(token.id);
  append_logprob(logprobs_.values, token.logprob);
  append_completion_alternatives(logprobs_.alternatives, *options_.tokenizer, token, top);
}

void CompletionOutput::append_logprobs(std::string& out) {
  if (!options_.logprobs || logprobs_.tokens.empty()) {
    out += R"(,"logprobs":null)";
    return;
  }
  out += R"(,"logprobs":{"tokens":[)" + logprobs_.tokens + R"(],"token_logprobs":[)" + logprobs_.values +
         R"(],"top_logprobs":[)" + logprobs_.alternatives + R"(],"text_offset":[)" + logprobs_.offsets + "]}";
  logprobs_ = {};
}

void CompletionOutput::settle(std::string* out) {
  if (!out || piece_.empty()) return;
  frame_.open(*out, options_.index);
  *out += ",\"text\":";
  append_json_string(*out, piece_);
  piece_.clear();
  append_logprobs(*out);
  *out += R"(,"finish_reason":null)";
  frame_.close(*out, used_, 0);
}

void CompletionOutput::end(engine::FinishReason reason, int32_t stop_id, std::string* out) {
  if (reason == engine::FinishReason::stop && !options_.discard &&
      contains(options_.request_stop_ids, stop_id))
    stop_id_ = stop_id;
  if (!stopped()) {
    stop_.push(detokenizer_.flush(), piece_);
    stop_.flush(piece_);
    if (stop_id_ >= 0 && options_.include_stop) piece_ += token_text(*options_.tokenizer, stop_id_);
  }
  if (options_.discard || (!stopped() && reason == engine::FinishReason::length)) finish_ = "length";
  if (!out) return;
  settle(out);
  frame_.open(*out, options_.index);
  *out += R"(,"text":"")";
  append_logprobs(*out);
  append_finish(*out);
  frame_.close(*out, used_, 0);
}

void CompletionOutput::append_finish(std::string& out) const {
  out += R"(,"finish_reason":")";
  out += finish_;
  out += R"(","stop_reason":)";
  if (stop_.matched()) {
    append_json_string(out, *stop_.matched());
  } else {
    out += stop_id_ >= 0 ? std::to_string(stop_id_) : "null";
  }
}

void CompletionOutput::append_choice(std::string& out) {
  out += R"({"index":)" + std::to_string(options_.index) + R"(,"text":)";
  append_json_string(out, piece_);
  append_logprobs(out);
  append_finish(out);
  out += "}";
}

}  // namespace godwit::server
