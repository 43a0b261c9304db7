// Service: what the server knows of the engine. The real one is Engine; tests and `bench mock` answer with
// recorded ids.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/ledger_line.h"
#include "engine/request.h"

namespace godwit::engine {

// Fixed at start; what /server_info and the start-up lines show. Effective values, not requested ones.
struct Info {
  std::string backend;                  // cpu | cuda
  std::string backend_detail;           // instruction set, threads
  std::string kv_dtype;                 // f32 | bf16 | fp8
  int64_t context = 0;                  // tokens a sequence may have
  int64_t max_sequences = 0;            // that run at once
  int64_t max_waiting = 0;              // admission queue limit
  int64_t pages = 0;                    // of 64 tokens
  int64_t prefill_tokens = 0;           // prompt rows a step may carry
  int64_t snapshots = 0;                // of recurrent state, for prefixes
  int64_t host_pages = 0;               // of the second tier; 0: there is none
  int64_t itl_target_ms = 0;            // what a step that streams wait for should take at most
  int64_t weight_bytes = 0;             // all ranks
  int64_t cache_bytes = 0;              // pages + slots
  int64_t workspace_bytes = 0;          // activations + scratch
  int64_t vocabulary = 0;               // ids that logits have, at least as many as the tokenizer's
  std::vector<int32_t> stop_ids;        // the model's own
  std::vector<LedgerLine> ledger;       // every byte that was placed at start (design §8)
  std::vector<Adjustment> adjustments;  // where what is in force is not what was asked for
};

enum class Health : uint8_t { loading, ready, draining, dead };

// A consistent snapshot; cheap, lock free on the engine thread.
struct Status {
  Health health = Health::loading;
  int64_t running = 0;
  int64_t waiting = 0;  // everything submitted that neither runs nor has ended
  int64_t pages_used = 0;
  int64_t slots_used = 0;
  uint64_t steps = 0;
  // SteadyClock: when a step last finished, or the engine last had nothing it could do (idle, or all streams
  // wait for their readers). Work pending and this long ago: the engine is stuck (design §1).
  int64_t last_progress_ns = 0;
  uint64_t prompt_tokens = 0;  // totals since start
  uint64_t cached_tokens = 0;
  uint64_t generated_tokens = 0;
  uint64_t finished = 0;
  uint64_t cancelled = 0;
  uint64_t failed = 0;
  // Why prompts, or the rest of them, were not in the cache; by MissReason.
  std::array<uint64_t, cache::kMissReasons> misses = {};
  uint64_t host_hits = 0;      // prompts whose prefix came back from the host tier
  uint64_t evicted_pages = 0;  // that the tree dropped to make room
  uint64_t preemptions = 0;    // requests that had to make room and continued later
  int64_t pages_cached = 0;    // pages that only the tree holds: free to take
  int64_t snapshots_used = 0;
  int64_t host_pages_used = 0;
  int64_t host_snapshots_used = 0;
  int64_t host_slots_used = 0;
  int64_t prefill_budget = 0;  // prompt rows that the last step with prompts was allowed
  std::string dead_reason;
};

// What flush_cache() freed.
struct Flushed {
  int64_t pages = 0;
  int64_t snapshots = 0;
  int64_t host_pages = 0;
  int64_t host_snapshots = 0;
  int64_t host_bytes = 0;  // of the two lines before
};

class Service {
 public:
  virtual ~Service() = default;

  // From any thread; never blocks. overloaded (429) when the queue is full, context_length when it can never
  // fit, unavailable (503) while draining or dead. After success the sink gets exactly one End.
  virtual Result<void> submit(Request request) = 0;
  virtual const Info& info() const = 0;
  virtual Status status() const = 0;
  // No new requests from now on; returns when all have ended or the deadline passed (the rest end with an
  // error).
  virtual void drain(int64_t deadline_ns) = 0;
  // Forgets every cached prefix that no running request reads, in both tiers, between two steps. Never
  // blocks; `done` is called once, from some other thread or from within, and must not block: unavailable
  // when the engine does not run, overloaded when too many flushes wait.
  virtual void flush_cache(std::function<void(const Result<Flushed>&)> done) = 0;
};

}  // namespace godwit::engine
