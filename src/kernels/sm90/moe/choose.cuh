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

// A row's experts in shared memory: what they are chosen by, in an order of words, and their probabilities.
struct Candidates {
  uint32_t* rank;
  float* p;
};
__host__ __device__ constexpr size_t candidate_bytes(int64_t experts) {
  return static_cast<size_t>(experts) * (sizeof(uint32_t) + sizeof(float));
}
__device__ inline Candidates candidates_at(void* memory, int32_t experts, int32_t row) {
  auto* rank = static_cast<uint32_t*>(memory) + int64_t{2} * experts * row;
  return {rank, reinterpret_cast<float*>(rank + experts)};
}
__device__ inline void enter(const Chooser& a, int32_t t, int32_t e, const Candidates& to) {
  const float p = sigmoid(__ldcg(a.logits(t) + e));
  to.p[e] = p;
  to.rank[e] = static_cast<uint32_t>(candidate(p + a.bias[e], 0) >> 32);
}

// By one warp, from candidates that are all there. Each round takes the best that is left, ties to the lower
// id; every lane knows the best of its own, so only the one that loses it looks again.
__device__ inline void choose(const Chooser& a, int32_t t, const Candidates& from) {
  constexpr uint32_t kAll = 0xffffffffu, kTaken = 0xffffffffu;
  const int lane = threadIdx.x % 32;
  uint32_t best = 0, best_expert = kAll;
  const auto look = [&] {
    best = 0, best_expert = kAll;
#pragma unroll 1
    for (int32_t e = lane; e < a.experts; e += 32) {
      const uint32_t rank = from.rank[e];
      if (rank != kTaken && rank > best) best = rank, best_expert = static_cast<uint32_t>(e);
    }
  };
  look();
#pragma unroll 1
  for (int32_t i = 0; i < a.chosen; ++i) {
    const uint32_t most = __reduce_max_sync(kAll, best);
    const uint32_t expert = __reduce_min_sync(kAll, best == most ? best_expert : kAll);
    if (expert == best_expert) {
      from.rank[expert] = kTaken;
      look();
    }
    __syncwarp();
  }
  int32_t* ids = a.ids(t);
  int32_t found = 0;
  float sum = 1e-20f;
#pragma unroll 1
  for (int32_t first = 0; first < a.experts; first += 32) {
    const int32_t e = first + lane;
    const bool taken = e < a.experts && from.rank[e] == kTaken;
    unsigned mask = __ballot_sync(kAll, taken);
    if (taken) ids[found + __popc(mask & ((1u << lane) - 1))] = e;
    found += __popc(mask);
#pragma unroll 1
    for (; mask != 0; mask &= mask - 1) sum += from.p[first + __ffs(static_cast<int>(mask)) - 1];
  }
  __syncwarp();
#pragma unroll 1
  for (int32_t i = lane; i < a.chosen; i += 32) a.weights(t)[i] = from.p[ids[i]] / sum * a.scale;
}

}  // namespace godwit::sm90
