// What a step must read, write and compute, from the weights themselves and the sizes of the step.
#pragma once

#include "bench/step_bench.h"
#include "model/glm5_next/weights.h"

namespace godwit::bench {

struct StepSize {
  int64_t sequences = 0, rows = 0, context = 0;  // rows of all sequences together
  int64_t sampled = 0;
  double distinct = 0;  // experts a layer touches here
  double choices = 0;   // chosen experts of all rows that lie here
  DType kv = DType::bf16;
};

// kda, dsa, ffn, mhc, head in this order; names and work only.
std::vector<StepPart> work_of(const model::ModelWeights& weights, const kernels::Dims& dims,
                              const StepSize& size);

// A draft: "first" when it selects, else "step". size.distinct and choices are those of the draft layer.
StepPart draft_work(const model::ModelWeights& weights, const kernels::Dims& dims, const StepSize& size,
                    bool selects);

}  // namespace godwit::bench
