// TokenSink: the bounded way back from the engine to one request's reader. The engine never waits for a
// reader: it asks room() before it schedules the request, so a slow client pauses its own sequence and nobody
// else's (pains §M).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "base/error.h"
#include "cache/cache.h"
#include "sample/sampling.h"
#include "schedule/sequence.h"

namespace godwit::engine {

using cache::MissReason;
using schedule::Failure;
using schedule::FinishReason;

// Sent once, when the first prompt row has been scheduled.
struct Start {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  MissReason miss = MissReason::none;
  int64_t first_difference_at = -1;  // with MissReason::first_difference
  int64_t queued_ns = 0;             // from submit to the first scheduled row
};

struct Token {
  int32_t id = -1;
  float logprob = 0;
};

// Alternatives of one token, only for requests that ask for them; as many entries as tokens.
struct TopLogprobs {
  int32_t count = 0;
  int32_t ids[sample::kMaxTopLogprobs];
  float logprobs[sample::kMaxTopLogprobs];
};

struct End {
  FinishReason reason = FinishReason::stop;
  int32_t stop_id = -1;
  Failure failure = Failure::none;  // with FinishReason::error
  int64_t completion_tokens = 0;    // every sampled id, the stop id included
  int64_t elapsed_ns = 0;           // from submit to the end
  int64_t prefill_ns = 0;           // first scheduled row to first token
  int64_t decode_ns = 0;            // first token to the end
};

// What the client of a request that ended with FinishReason::error or cancelled is told. For the reader's
// thread: it makes a text.
Error error_of(const End& end);

class TokenSink {
 public:
  // capacity: tokens that may wait unread. wake is called from the engine's delivery thread after something
  // was pushed and the reader had taken everything before; it must not block.
  TokenSink(size_t capacity, std::function<void()> wake);

  // Before the engine knows the request: alternatives will be pushed, and those of the prompt's ids if
  // `prompt`, so storage for them is needed, too.
  void keep_logprobs(bool prompt);

  // Engine side. Nothing here allocates: storage is reserved before.
  size_t room() const;
  void push_start(const Start& start);
  void push(const Token& token, const TopLogprobs* top);  // needs room() >= 1
  // The next id of the prompt, the first excepted. Needs room() >= 1. True when the reader has to be woken:
  // scores come by the hundred, and one wake is enough for all that wait.
  bool push_score(const Token& token, const TopLogprobs& top);
  void push_end(End end);  // always fits; the last call
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  // True when the reader must be woken since its last take(); clears the mark. The delivery thread calls
  // wake() then.
  bool claim_wake();
  void wake() { wake_(); }

  // Reader side.
  struct Batch {
    std::optional<Start> start;
    std::vector<Token> tokens;
    std::vector<TopLogprobs> top;  // empty, or one per token
    // Of the prompt's ids after the first, in order and all before the first token, for requests that ask.
    std::vector<Token> scores;
    std::vector<TopLogprobs> score_top;  // one per score
    std::optional<End> end;
    bool empty() const { return !start && tokens.empty() && scores.empty() && !end; }
  };
  void take(Batch& out);  // replaces `out` with everything waiting; reuses its storage
  void cancel() { cancelled_.store(true, std::memory_order_release); }

 private:
  void reserve(Batch& batch) const;

  mutable std::mutex mutex_;
  std::function<void()> wake_;
  size_t capacity_;
  bool keeps_logprobs_ = false;
  bool keeps_scores_ = false;
  Batch waiting_;
  bool wake_needed_ = false;
  std::atomic<bool> cancelled_{false};
};

}  // namespace godwit::engine
