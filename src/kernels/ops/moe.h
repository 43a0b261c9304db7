// Router and routed experts: glm5_next spec §11.2, §11.3. E experts, k chosen, I inner width on this rank.
#pragma once

#include "kernels/step.h"
#include "tensor/tensor.h"

namespace godwit::kernels {

// p = sigmoid(W x) in f32; choose the k largest of p + bias (ties: lower id; NaN ranks last); weight = p /
// (sum of the k + 1e-20) * scale. The bias never enters the weights (trap T32).
struct Route {
  View x;                       // [T, D]
  Weight w;                     // [E, D]
  const float* bias = nullptr;  // [E]
  float scale = 0;              // routed_scaling_factor
  View logits;                  // [T, E] f32 scratch
  View ids;                     // [T, k] i32, ascending expert id
  View weights;                 // [T, k] f32, in the order of ids
  int64_t decode_rows = kAllRows;
};

// One routed expert on this rank. The table of all experts lies in the backend's memory. All are of one type,
// of one width I, 16-byte aligned, and their rows are packed.
struct ExpertWeights {
  Weight gate, up;  // [I, D]
  Weight down;      // [D, I]
};

// out[t] = sum over the chosen experts that this rank holds, in ascending expert id, of weight * ffn_e(x[t])
// (f32 sum).
struct Experts {
  View x;                                  // [T, D]
  View ids;                                // [T, k] i32
  View weights;                            // [T, k] f32
  const ExpertWeights* experts = nullptr;  // [experts of this rank]
  DType dtype = DType::f32;                // of their weights, and their I: what a device backend
  int64_t inner = 0;                       // may know without reading the table
  int32_t first_expert = 0;                // global id of experts[0]
  int32_t expert_count = 0;                // experts of this rank
  float limit = 0;                         // swiglu_limit
  View out;                                // [T, D]
  int64_t decode_rows = kAllRows;
};

// A dense FFN: the first layers, and the shared expert.
struct Ffn {
  View x;  // [T, D]
  Weight gate, up, down;
  float limit = 0;
  View gate_up;  // [T, 2 I] scratch
  View inner;    // [T, I] scratch
  View out;      // [T, D]
  int64_t decode_rows = kAllRows;
};

// route + experts + shared expert; one entry, so that a backend can fuse. out = routed + shared; what lies in
// experts.out and shared.out afterwards is the backend's own.
struct Moe {
  Route route;
  Experts experts;
  Ffn shared;
  View out;  // [T, D]
};

}  // namespace godwit::kernels
