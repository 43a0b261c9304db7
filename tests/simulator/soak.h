// Soak: the real schedule and cache under random traffic, clients that leave, readers that stall, damaged
// copies and NaN rows, with every invariant checked in every step. What it finds wrong it throws.
#pragma once

#include <string>

#include "histogram.h"
#include "schedule/scheduler.h"
#include "step_costs.h"
#include "traffic.h"

namespace godwit::simulator {

struct SoakOptions {
  std::string name;
  int64_t requests = 10'000;
  uint64_t seed = 1;
  schedule::ScheduleLimits limits;
  int32_t pages = 256;
  int32_t snapshots = 32;
  cache::HostSizes host;
  TrafficShape shape;
  StepCosts costs;
};

struct SoakReport {
  int64_t stopped = 0, full_length = 0, cancelled = 0, overdue = 0, not_finite = 0, refused = 0;
  int64_t steps = 0, drawn = 0, prompt_tokens = 0, cached_tokens = 0, prompt_rows = 0, forced_rows = 0;
  int64_t preemptions = 0, most_preemptions = 0, idle_times = 0;
  int64_t host_hits = 0, evictions = 0;
  int64_t moves = 0, swaps = 0;  // copies between the tiers; of them, of whole slots
  int64_t waits = 0;             // steps that a stream waited for copies to make room
  double virtual_seconds = 0;
  Histogram gap, queued, first_token;  // between two tokens of a reading client; to admission; to first token
  Histogram copies;                    // what the copies of a step took

  int64_t ended() const { return stopped + full_length + cancelled + overdue + not_finite; }
};

SoakReport soak(const SoakOptions& options);

// The worlds of the simulator, `requests` dealt out among them.
std::vector<SoakOptions> worlds(int64_t requests);

}  // namespace godwit::simulator
