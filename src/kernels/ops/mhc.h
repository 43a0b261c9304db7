// mHC, manifold-constrained hyper-connections: glm5_next spec §6. n = streams, D = hidden. All arithmetic
// f32.
#pragma once

#include "kernels/step.h"
#include "tensor/tensor.h"

namespace godwit::kernels {

struct MhcWeights {
  View fn;                       // [2n + n^2, n D] bf16 | f32
  const float* base = nullptr;   // [2n + n^2]
  const float* scale = nullptr;  // [3]: pre, post, comb
};

// Every stream starts as the embedding: streams[t, s] = x[t].
struct MhcBroadcast {
  View x;        // [T, D]
  View streams;  // [T, n D]
};

// Mapping (RMS over all n D values with norm_eps, sigmoid, softmax, Sinkhorn ending on a column step) and
// collapse x = sum_i pre_i streams_i. Leaves what mhc_expand needs in `mix`.
struct MhcCollapse {
  View streams;  // [T, n D]
  MhcWeights weights;
  float norm_eps = 0;      // rms_norm_eps
  float hc_eps = 0;        // added to pre and in every Sinkhorn denominator
  int32_t iterations = 0;  // 20 column steps, 19 row steps
  View mix;                // [T, n + n^2] f32: post_j, then C row-major (row = input stream)
  View x;                  // [T, D]
  int64_t decode_rows = kAllRows;
};

// streams'[j] = post_j y + sum_i C_ij streams_i: C is applied transposed (trap T2).
struct MhcExpand {
  View mix;      // [T, n + n^2] f32
  View y;        // [T, D] sublayer output, summed over ranks
  View streams;  // [T, n D] in and out
};

// Expand of one site, then mapping, collapse and RMSNorm of the next: fused on a GPU, a composition by
// default. What lies in collapse.x afterwards is the backend's own.
struct MhcBoundary {
  MhcExpand expand;  // without y: there is no site before
  MhcCollapse collapse;
  const float* norm_weight = nullptr;  // [D] input_layernorm or post_attention_layernorm
  View normed;                         // [T, D]
  bool feeds_fp8 = false;              // normed goes into FP8 products: a backend may quantise it here
};

// out = mean of the streams (spec §12, trap T5).
struct MhcMean {
  View streams;  // [T, n D]
  View out;      // [T, D]
};

}  // namespace godwit::kernels
