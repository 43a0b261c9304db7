// Joining: what running streams feel while long prompts keep coming, new ones and such as the host tier has.
#pragma once

#include <cstdint>

#include "step_costs.h"

namespace godwit::simulator {

struct JoiningOptions {
  int64_t streams = 16;
  int64_t stream_context = 8192;
  int64_t prompt = 131'072;  // a new one comes when the last has its first token
  int64_t prompts = 12;
  int64_t itl_target_ns = 30'000'000;
  StepCosts costs;
};

struct JoiningReport {
  double p50_before_ms = 0;  // between tokens, nobody joining
  double p50_ms = 0, p99_ms = 0, longest_ms = 0;
  double prompt_tokens_per_second = 0;
  double ratio() const { return p99_ms / p50_before_ms; }
};

JoiningReport join(const JoiningOptions& options);

// What the same streams feel while prompts come back from the host tier, one after the other.
struct RestoringReport {
  double p50_before_ms = 0;  // between tokens, nothing is copied
  double p50_ms = 0, p99_ms = 0, longest_ms = 0;
  double restored_gib_per_second = 0;
  double first_token_ms = 0;  // of a prompt that comes back, on average
  int64_t restores = 0;
};

RestoringReport restore(const JoiningOptions& options);

}  // namespace godwit::simulator
