// The router's choice (glm5_next spec §11.2): one warp a row, a round for each chosen expert.
#include "kernels/sm90/device/common.cuh"
#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {
namespace {

// Each round takes the best candidate below the one before; ids are written in ascending order at the end.
__global__ void __launch_bounds__(32)
    route_kernel(Rows<const float> logits, const float* bias, int32_t experts, int32_t chosen, float scale,
                 Rows<int32_t> ids, Rows<float> weights) {
  float* const memory = dynamic_shared<float>();
  float *p = memory, *rank = memory + experts;  // [experts] each: probability, and what is chosen by
  begin_dependent();
  const int64_t t = blockIdx.x;
  const int lane = threadIdx.x;
#pragma unroll 4
  for (int32_t e = lane; e < experts; e += 32) {
    const float own = sigmoid(logits(t)[e]);
    p[e] = own;
    rank[e] = own + bias[e];
  }
  __syncwarp();
  uint64_t limit = ~uint64_t{0};
  for (int32_t i = 0; i < chosen; ++i) {
    uint64_t best = 0;
    for (int32_t e = lane; e < experts; e += 32) {
      const uint64_t word = candidate(rank[e], e);
      if (word < limit && word > best) best = word;
    }
    for (int offset = 16; offset > 0; offset /= 2) {
      const uint64_t other = __shfl_xor_sync(0xffffffffu, best, offset);
      best = other > best ? other : best;
    }
    limit = best;
  }
  // What is at or above the last one is chosen.
  int32_t* own_ids = ids(t);
  int32_t found = 0;
  float sum = 1e-20f;
  for (int32_t first = 0; first < experts; first += 32) {
    const int32_t e = first + lane;
    const bool taken = e < experts && candidate(rank[e], e) >= limit;
    unsigned mask = __ballot_sync(0xffffffffu, taken);
    if (taken) own_ids[found + __popc(mask & ((1u << lane) - 1))] = e;
    found += __popc(mask);
    for (; mask != 0; mask &= mask - 1) sum += p[first + __ffs(static_cast<int>(mask)) - 1];
  }
  __syncwarp();
  for (int32_t i = lane; i < chosen; i += 32) weights(t)[i] = p[own_ids[i]] / sum * scale;
}

}  // namespace

void route(cudaStream_t stream, const kernels::Route& a) {
  if (a.x.rows == 0) return;
  const auto experts = static_cast<int32_t>(a.w.out());
  launch_dependent(stream, "route", blocks_for(a.x.rows, 1), 32,
                   2 * static_cast<size_t>(experts) * sizeof(float), route_kernel,
                   rows_of<const float>(a.logits), a.bias, experts, static_cast<int32_t>(a.ids.cols), a.scale,
                   rows_of<int32_t>(a.ids), rows_of<float>(a.weights));
}

}  // namespace godwit::sm90
