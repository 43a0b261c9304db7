// The router's choice and the groups of experts, each in a launch of its own: for steps of many rows.
#include "kernels/sm90/moe/choose.cuh"
#include "kernels/sm90/moe/plan.cuh"

namespace godwit::sm90 {
namespace {

// A row a block. Its warps meet for the logits, one chooses.
constexpr int kChooseThreads = 128;

__global__ void __launch_bounds__(kChooseThreads) choose_kernel(Chooser a) {
  begin_dependent();
  const auto t = static_cast<int32_t>(blockIdx.x);
  const Candidates row = candidates_at(dynamic_shared<uint32_t>(), a.experts, a.chosen, 0);
#pragma unroll 4
  for (int32_t e = threadIdx.x; e < a.experts; e += kChooseThreads) enter(a.logits(t)[e], a.bias[e], e, row);
  __syncthreads();
  if (threadIdx.x < 32) choose(a, t, row);
}

constexpr int kPlanThreads = 1024;

__global__ void __launch_bounds__(kPlanThreads) plan_kernel(const __grid_constant__ Choice a) {
  begin_dependent();
  plan<kPlanThreads>(a, dynamic_shared<int32_t>());
}

}  // namespace

void choose_experts(cudaStream_t stream, const Chooser& a, int64_t rows) {
  launch_dependent(stream, "route", blocks_for(rows, 1), kChooseThreads, candidate_bytes(a.experts, a.chosen),
                   choose_kernel, a);
}

void plan_groups(cudaStream_t stream, const Choice& a) {
  launch_dependent(stream, "experts", 1, kPlanThreads, plan_bytes(a.held), plan_kernel, a);
}

}  // namespace godwit::sm90
