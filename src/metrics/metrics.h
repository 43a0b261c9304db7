// The one registry of the process, and the only names it exports (api spec §4.9). Labels hold routes, codes
// and reasons, never anything a client wrote (pains O4).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace godwit::metrics {

// A setting that is not in force as it was asked for (pains A15).
struct AdjustedSetting {
  std::string setting;
  int64_t requested = 0;
  int64_t effective = 0;
};

// The engine's own counts at the moment of a scrape: gauges and totals come from its ledger, from nowhere
// else (pains O1).
struct EngineSnapshot {
  bool ready = false;
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t pages_used = 0;
  int64_t pages_total = 0;
  int64_t slots_used = 0;
  int64_t slots_total = 0;
  uint64_t steps = 0;
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  uint64_t generated_tokens = 0;
  std::vector<std::pair<std::string, uint64_t>> misses;  // reason ▶ requests, every reason each time
  uint64_t evicted_pages = 0;
  uint64_t host_hits = 0;
  uint64_t preemptions = 0;
  int64_t pages_cached = 0;
  int64_t snapshots_used = 0;
  int64_t snapshots_total = 0;
  int64_t host_pages_used = 0;
  int64_t host_pages_total = 0;
  double itl_target_seconds = 0;
  int64_t prefill_limit = 0;   // prompt rows a step may carry
  int64_t prefill_budget = 0;  // that the last step with prompts was allowed
  int64_t connections = 0;
  int64_t body_bytes = 0;
  double silent_seconds = 0;  // since the engine last made progress
  std::vector<AdjustedSetting> adjusted;
};

// One generating request, when it has ended.
struct RequestSample {
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t reasoning_tokens = 0;
  double queue_seconds = -1;  // negative: never scheduled, not observed; so for the next one
  double first_token_seconds = -1;
  double total_seconds = 0;
};

class Metrics {
 public:
  Metrics();
  ~Metrics();

  void count_response(std::string_view route, int status);
  // key: its name, "" for none that is known. result: accepted | limited | unknown
  void count_key_request(std::string_view key, std::string_view result);
  // reason: stop | length | tool_calls | cancelled | error
  void count_finish(std::string_view reason);
  void count_abort();  // the client left before its answer was complete
  void count_rollback();
  void observe_request(const RequestSample& sample);
  // Time between two deliveries to a client, divided by the tokens of the later one.
  void observe_inter_token(double seconds);

  // Prometheus text format 0.0.4.
  std::string text(const EngineSnapshot& engine);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace godwit::metrics
