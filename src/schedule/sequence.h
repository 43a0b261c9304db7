// Sequence: a request as the schedule sees it. Plain data; made on the submitting thread with all the storage
// it will ever need, so that the engine thread allocates nothing.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "cache/cache.h"
#include "sample/sampling.h"

namespace godwit::schedule {

enum class FinishReason : uint8_t {
  stop,       // a stop id; the id is the last token of the stream
  length,     // max_tokens or the end of the context
  cancelled,  // the reader went away or has what it wanted
  error,
};

// With FinishReason::error. A code and no text: the engine thread allocates nothing, words are made by
// whoever reads them.
enum class Failure : uint8_t {
  none,
  deadline,     // the request's own
  not_finite,   // a row of it gave no finite logits
  shut_down,    // the drain deadline of the server passed
  engine_died,  // the one fatal path (design §6)
};

struct Sequence {
  uint64_t number = 0;          // unique in this process
  std::vector<int32_t> tokens;  // prompt, forced ids, then drawn ids; capacity = prompt + max_tokens
  std::vector<uint64_t> keys;   // cache::block_keys of the prompt
  int64_t prompt_tokens = 0;
  int64_t forced_end = 0;  // tokens below it were given, not drawn: prompt + forced ids of a resume
  int64_t computed = 0;    // positions whose state and cache entries exist
  int64_t max_tokens = 0;  // drawn and forced together
  int64_t min_tokens = 0;
  std::vector<int32_t> stop_ids;
  sample::SamplingRow sampling;  // slot, position and offsets are filled in each step
  std::vector<std::pair<int32_t, float>> bias;
  int64_t scored_end = 0;   // prompt positions whose rows have been reported
  int64_t rank = 0;         // its place in the one order of the schedule; lower is served first, set by add()
  int64_t deadline_ns = 0;  // 0 = none
  int64_t submitted_ns = 0;
  int64_t started_ns = 0;      // first scheduled row; 0 = never
  int64_t first_token_ns = 0;  // 0 = none yet
  cache::Lease lease;
  int64_t room = 0;         // tokens and scores that its reader can take; only of a scored sequence
  void* owner = nullptr;    // the engine's record of this request
  int32_t priority = 0;     // lower runs first
  int32_t preemptions = 0;  // times it gave everything back

  bool ignore_eos = false;
  bool scored = false;  // log probabilities of its prompt are reported, which is computed without the cache
  bool masked = false;  // its draws are masked; see Listener::on_masked_row
  bool ran = false;     // since it was admitted: its slot holds what `computed` says
  bool history_ready = false;  // the slot's token history holds the prompt
  bool paused = false;         // its reader has no room: keeps what it holds, gets no rows
  bool cancelled = false;

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  int64_t completion_tokens() const { return size() - prompt_tokens; }
  bool decoding() const { return computed >= prompt_tokens; }
};

}  // namespace godwit::schedule
