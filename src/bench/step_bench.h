// One step of one rank at the real shapes, with synthetic weights and without communication (design §13).
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "bench/step_memory.h"

namespace godwit::bench {

struct StepCase {
  std::string shape = "glm-5.3-flash";
  std::string device = "cuda";
  int64_t tp = 4, ep = 1, rank = 0;
  std::vector<int64_t> batches = {1};      // sequences of a decode step
  std::vector<int64_t> contexts = {8192};  // tokens before the step
  int64_t rows = 1;                        // of each sequence: 1 decodes, more verify
  bool draft = false;                      // instead: the draft step, one row of each sequence
  int64_t prefill = 0;          // instead: a slice of so many prompt rows of each sequence, then decode steps
  bool whole = false;           // with prefill: also all slices from the first token to the end of this one
  std::string kv = "auto";      // format of the caches
  bool shared_context = false;  // all sequences of a step read the same pages of context
  int64_t rounds = 7;           // timed rounds of each of two recordings; the median of all counts
};

// Of the whole step, or of one of its parts run alone.
struct StepPart {
  std::string name;
  double us = 0, us_min = 0, us_max = 0;
  double gigabytes = 0, gigaflops = 0;  // what it must move and compute
  double roof_us = 0;                   // the longer of both at kRoofBandwidth and the data sheet's rates
  double a_a_percent = 0;  // by which the medians of two recordings of the same differ, rounds alternating
};

// What follows a slice, through the step of an engine with its recordings.
struct DecodeBehind {
  double first_us = 0, steady_us = 0;  // the first step, and the median of those behind it
  int64_t free_before = 0,
          free_after = 0;  // bytes of the device before the slice and after these; 0: unknown
};

struct StepResult {
  int64_t batch = 0, context = 0, rows = 0;
  std::string kv;  // "auto" decided
  std::vector<StepPart>
      parts;  // the step first; of drafts one that reuses a selection, then one that selects
  double distinct_experts = 0;  // of this rank that a layer touched, on average
  double expected_experts = 0;  // under independent, uniform choice
  bool same_logits = false;     // timed and untimed steps agree bit for bit
  std::string refused;          // why it was not run
  StepMemory memory;
  DecodeBehind behind;  // prefill only
  int64_t whole_tokens = 0;
  double whole_us = 0;  // all slices of the prompts, one after the other; 0: not asked for

  // Whether the numbers may be believed: what was timed is a step, and nothing was allocated behind it.
  bool trusted() const {
    return !refused.empty() || (same_logits && behind.free_before == behind.free_after);
  }
  // Rows of one rank, all ranks doing theirs at the same time.
  double tokens_per_s() const {
    return parts.empty() ? 0 : static_cast<double>(batch * rows) / parts[0].us * 1e6;
  }
};

// bytes a second: a copy of 4 GiB on an H200 (spec/peer_kernels).
constexpr double kRoofBandwidth = 4.3e12;

// Drafts behind a step of the target: the first selects, those behind it reuse what it selected.
constexpr int64_t kDraftDepth = 5;

Result<std::vector<StepResult>> run_step_bench(const StepCase& asked);
Json as_json(const StepCase& asked, const std::vector<StepResult>& results);
std::string as_table(const StepCase& asked, const std::vector<StepResult>& results);

}  // namespace godwit::bench
