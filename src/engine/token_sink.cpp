#include "engine/token_sink.h"

#include <utility>

#include "base/assert.h"
#include "base/result.h"

namespace godwit::engine {

Error error_of(const End& end) {
  switch (end.failure) {
    case Failure::deadline:
      return make_error(
          ErrorCode::request_timeout, "timeout_ms",
          "the request's deadline passed after {} ms, with {} tokens generated; allow more time or "
          "ask for fewer tokens",
          end.elapsed_ns / 1'000'000, end.completion_tokens);
    case Failure::not_finite:
      return make_error(ErrorCode::internal, "",
                        "the model gave no finite logits for this request after {} generated tokens; other "
                        "requests are not affected",
                        end.completion_tokens);
    case Failure::shut_down:
      return make_error(ErrorCode::unavailable, "", "the server shut down before the answer was finished");
    case Failure::engine_died:
      return make_error(ErrorCode::internal, "", "the engine failed while the request was running");
    case Failure::none:
      break;
  }
  return make_error(ErrorCode::unavailable, "", "the generation was cancelled");
}

TokenSink::TokenSink(size_t capacity, std::function<void()> wake)
    : wake_(std::move(wake)), capacity_(capacity) {
  waiting_.tokens.reserve(capacity);
}

void TokenSink::keep_logprobs(bool prompt) {
  std::lock_guard lock(mutex_);
  keeps_logprobs_ = true;
  keeps_scores_ = prompt;
  reserve(waiting_);
}

// A reader's first batches have no storage yet; what it hands back to the engine's side must.
void TokenSink::reserve(Batch& batch) const {
  if (batch.tokens.capacity() < capacity_) batch.tokens.reserve(capacity_);
  if (keeps_logprobs_ && batch.top.capacity() < capacity_) batch.top.reserve(capacity_);
  if (!keeps_scores_ || batch.scores.capacity() >= capacity_) return;
  batch.scores.reserve(capacity_);
  batch.score_top.reserve(capacity_);
}

size_t TokenSink::room() const {
  std::lock_guard lock(mutex_);
  return capacity_ - waiting_.tokens.size() - waiting_.scores.size();
}

void TokenSink::push_start(const Start& start) {
  std::lock_guard lock(mutex_);
  waiting_.start = start;
  wake_needed_ = true;
}

void TokenSink::push(const Token& token, const TopLogprobs* top) {
  std::lock_guard lock(mutex_);
  GODWIT_ASSERT(waiting_.tokens.size() < capacity_);
  waiting_.tokens.push_back(token);
  if (top) waiting_.top.push_back(*top);
  wake_needed_ = true;
}

bool TokenSink::push_score(const Token& token, const TopLogprobs& top) {
  std::lock_guard lock(mutex_);
  GODWIT_ASSERT(waiting_.tokens.size() + waiting_.scores.size() < capacity_);
  waiting_.scores.push_back(token);
  waiting_.score_top.push_back(top);
  return !std::exchange(wake_needed_, true);
}

void TokenSink::push_end(End end) {
  std::lock_guard lock(mutex_);
  GODWIT_ASSERT(!waiting_.end);
  waiting_.end = std::move(end);
  wake_needed_ = true;
}

bool TokenSink::claim_wake() {
  std::lock_guard lock(mutex_);
  return std::exchange(wake_needed_, false);
}

void TokenSink::take(Batch& out) {
  out.start.reset();
  out.tokens.clear();
  out.top.clear();
  out.scores.clear();
  out.score_top.clear();
  out.end.reset();
  reserve(out);
  std::lock_guard lock(mutex_);
  std::swap(out, waiting_);
  wake_needed_ = false;
}

}  // namespace godwit::engine
