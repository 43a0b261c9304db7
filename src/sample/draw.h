// The draw: greedy, or temperature, top_k, top_p, min_p and one Philox number through the inverse of the
// cumulative distribution, over the kept ids in ascending order. Pure functions of one row, called by every
// backend whose logits are on the host.
#pragma once

#include <cstdint>

#include "sample/processors.h"
#include "sample/sampling.h"

namespace godwit::sample {

// An id with its logit; the order of the cuts is by value, ties to the lower id.
struct Candidate {
  float value;
  int32_t id;
};

// Runs the processors on logits [vocab] in place, then draws. `workspace` holds vocab entries and nothing is
// allocated. A row that cannot be drawn from gives finite = 0 and id = -1.
// A row with row.scored >= 0 is left as it is and only its logprobs are reported.
Sampled sample_row(float* logits, int64_t vocab, const SamplingRow& row, const RowContext& context,
                   Candidate* workspace);

}  // namespace godwit::sample
