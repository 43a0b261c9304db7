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
  begin_dependent();
  extern __shared__ uint8_t taken[];  // [experts]
  const int64_t t = blockIdx.x;
  const int lane = threadIdx.x;
  for (int32_t e = lane; e < experts; e += 32) taken[e] = 0;
  __syncwarp();
  uint64_t limit = ~uint64_t{0};
  for (int32_t i = 0; i < chosen; ++i) {
    uint64_t best = 0;
    for (int32_t e = lane; e < experts; e += 32) {
      const uint64_t word = candidate(sigmoid(logits(t)[e]) + bias[e], e);
      if (word < limit && word > best) best = word;
    }
    for (int offset = 16; offset > 0; offset /= 2) {
      const uint64_t other = __shfl_xor_sync(0xffffffffu, best, offset);
      best = other > best ? other : best;
    }
    limit = best;
    if (lane == 0) taken[index_of(best)] = 1;
  }
  if (lane != 0) return;
  float sum = 1e-20f;
  for (int32_t e = 0; e < experts; ++e) {
    if (taken[e]) sum += sigmoid(logits(t)[e]);
  }
  int32_t i = 0;
  for (int32_t e = 0; e < experts; ++e) {
    if (!taken[e]) continue;
    ids(t)[i] = e;
    weights(t)[i++] = sigmoid(logits(t)[e]) / sum * scale;
  }
}

}  // namespace

void route(cudaStream_t stream, const kernels::Route& a) {
  if (a.x.rows == 0) return;
  const auto experts = static_cast<int32_t>(a.w.out());
  launch_dependent(stream, "route", blocks_for(a.x.rows, 1), 32, static_cast<size_t>(experts), route_kernel,
                   rows_of<const float>(a.logits), a.bias, experts, static_cast<int32_t>(a.ids.cols), a.scale,
                   rows_of<int32_t>(a.ids), rows_of<float>(a.weights));
}

}  // namespace godwit::sm90
