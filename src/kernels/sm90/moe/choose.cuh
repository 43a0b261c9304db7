// The router's choice for one row (glm5_next spec §11.2).
#pragma once

#include "kernels/sm90/device/common.cuh"

namespace godwit::sm90 {

struct Chooser {
  Rows<const float> logits;  // [T, E]
  const float* bias;         // [E]
  int32_t experts, chosen;
  float scale;
  Rows<int32_t> ids;    // [T, k]
  Rows<float> weights;  // [T, k]
};

// A row in shared memory: what its experts are chosen by, in an order of words, their probabilities, and then
// the chosen ones.
struct Candidates {
  uint32_t* rank;   // [E]
  float* p;         // [E]
  int32_t* chosen;  // [k], ascending
};
__host__ __device__ constexpr size_t candidate_bytes(int64_t experts, int64_t chosen) {
  return static_cast<size_t>(2 * experts + chosen) * sizeof(uint32_t);
}
__device__ inline Candidates candidates_at(void* memory, int32_t experts, int32_t chosen, int32_t row) {
  auto* rank = static_cast<uint32_t*>(memory) + int64_t{row} * (2 * experts + chosen);
  return {rank, reinterpret_cast<float*>(rank + experts), reinterpret_cast<int32_t*>(rank + 2 * experts)};
}
__device__ inline void enter(float logit, float bias, int32_t e, const Candidates& to) {
  const float p = sigmoid(logit);
  to.p[e] = p;
  to.rank[e] = static_cast<uint32_t>(candidate(p + bias, 0) >> 32);
}

// By one warp, from candidates that are all there. Each round takes the best that is left, ties to the lower
// id; every lane knows the best of its own, so only the one that loses it looks again.
__device__ inline void choose(const Chooser& a, int32_t t, const Candidates& from) {
  constexpr uint32_t kAll = 0xffffffffu, kTaken = 0xffffffffu;
  const int lane = threadIdx.x % 32;
  uint32_t best = 0, best_expert = kAll;
  bool looks = true;
#pragma unroll 1
  for (int32_t i = 0; i < a.chosen; ++i) {
    if (looks) {
      best = 0, best_expert = kAll;
#pragma unroll 8
      for (int32_t e = lane; e < a.experts; e += 32) {
        const uint32_t rank = from.rank[e];
        if (rank != kTaken && rank > best) best = rank, best_expert = static_cast<uint32_t>(e);
      }
    }
    const uint32_t most = __reduce_max_sync(kAll, best);
    const uint32_t expert = __reduce_min_sync(kAll, best == most ? best_expert : kAll);
    looks = expert == best_expert;
    if (looks) from.rank[expert] = kTaken;
    __syncwarp();
  }
  int32_t found = 0;
#pragma unroll 4
  for (int32_t first = 0; first < a.experts; first += 32) {
    const int32_t e = first + lane;
    const bool taken = e < a.experts && from.rank[e] == kTaken;
    const unsigned mask = __ballot_sync(kAll, taken);
    if (taken) from.chosen[found + __popc(mask & ((1u << lane) - 1))] = e;
    found += __popc(mask);
  }
  __syncwarp();
  float sum = 1e-20f;
#pragma unroll 8
  for (int32_t i = 0; i < a.chosen; ++i) sum += from.p[from.chosen[i]];
#pragma unroll 1
  for (int32_t i = lane; i < a.chosen; i += 32) {
    const int32_t e = from.chosen[i];
    a.ids(t)[i] = e;
    a.weights(t)[i] = from.p[e] / sum * a.scale;
  }
}

}  // namespace godwit::sm90
