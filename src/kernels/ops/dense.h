// Arguments of the dense ops. T = rows. Activations are the backend's activation type: f32 on the CPU and in
// `reference`; bf16 on GPUs except where a comment says f32 (rounding points: glm5_next spec §4, §23).
#pragma once

#include "kernels/step.h"
#include "tensor/tensor.h"

namespace godwit::kernels {

// out[t] = table[id(t) - first_id], or 0 when another rank holds the id. glm5_next spec §5.
struct Embed {
  Weight table;                         // [V share, D] bf16 | f32
  int64_t first_id = 0;                 // id of table row 0
  const int32_t* last_token = nullptr;  // [slots] for rows whose id is kFromSlot
  View out;                             // [T, D]
};

// out = weight * x / sqrt(mean(x^2) + eps). Spec §7. In place allowed.
struct RmsNorm {
  View x;                         // [T, C]
  const float* weight = nullptr;  // [C]
  float eps = 0;
  View out;  // [T, C]
};

// out = weight * (x - mean) / sqrt(var + eps) + bias. Spec §7 (indexer k_norm). In place allowed.
struct LayerNorm {
  View x;                         // [T, C]
  const float* weight = nullptr;  // [C]
  const float* bias = nullptr;    // [C]
  float eps = 0;
  View out;  // [T, C]
};

// out[t, n] = sum_k w[n, k] x[t, k], accumulated in f32 in an order that depends on (N, K) only (design §7).
// f8_e4m3 weights: x is quantised per row and aligned group of 128 columns (scale = max|x| / 448 by true f32
// division, codes = e4m3(x / scale), a group of zeros has scale 0), each 128-block of the product is
// multiplied by both scales. glm5_next spec §3.4, kernels spec §2.3. out is f32 on every backend when
// `out.dtype` says so (router, heads' weights). Prefill rows may meet bf16 weights rounded to bf16 (kernels
// spec §2.1).
struct Linear {
  View x;    // [T, K]
  Weight w;  // [N, K]
  View out;  // [T, N], rows may be strided
  int64_t decode_rows = kAllRows;
};

// Per head h: out[t, h, :] = w_h x[t, h, :]. The absorbed halves of kv_b (spec §9.2).
struct HeadLinear {
  View x;             // [T, heads * in]
  View w;             // [heads * out, in] bf16 | f32: head h owns rows [h out, (h+1) out)
  int64_t heads = 0;  // H
  View out;           // [T, heads * out]
  int64_t decode_rows = kAllRows;
};

// out = silu(min(gate, limit)) * clamp(up, -limit, limit). Spec §11.1.
struct SwiGlu {
  View gate_up;  // [T, 2 I]: gate then up
  float limit = 0;
  View out;  // [T, I]
};

// out = a + b. In place allowed.
struct Add {
  View a;    // [T, C]
  View b;    // [T, C]
  View out;  // [T, C]
};

// out[i] = x[rows[i]].
struct GatherRows {
  View x;                         // [T, C]
  const int32_t* rows = nullptr;  // [R] in the backend's memory
  View out;                       // [R, C]
};

}  // namespace godwit::kernels
