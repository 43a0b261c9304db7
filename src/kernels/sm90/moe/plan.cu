// The router's choice and the groups of experts, for steps of more rows than the router's launch chooses for.
#include <algorithm>

#include "kernels/sm90/moe/choose.cuh"
#include "kernels/sm90/moe/plan.cuh"

namespace godwit::sm90 {
namespace {

// A row a block. Its warps meet for the logits, one chooses. So many that the experts of a rank are counted
// and described in one go: each further one waits for memory again.
constexpr int kChooseThreads = 320;

// kPlans: the block that ends last sorts what all have chosen into groups.
template <bool kPlans>
__global__ void __launch_bounds__(kChooseThreads)
    choose_kernel(const __grid_constant__ Chooser a, const __grid_constant__ Choice choice, int32_t* ended) {
  let_next_start();
  if constexpr (kPlans) {
    const int64_t at = (int64_t{blockIdx.x} * kChooseThreads + threadIdx.x) * 128;
    if (at < choice.held * int64_t{sizeof(kernels::ExpertWeights)}) {
      prefetch(reinterpret_cast<const uint8_t*>(choice.experts) + at);
    }
  }
  wait_for_previous();
  const auto t = static_cast<int32_t>(blockIdx.x);
  auto* const memory = dynamic_shared<uint32_t>();
  const Candidates row = candidates_at(memory, a.experts, a.chosen, 0);
#pragma unroll 4
  for (int32_t e = threadIdx.x; e < a.experts; e += kChooseThreads) enter(a.logits(t)[e], a.bias[e], e, row);
  __syncthreads();
  if (threadIdx.x < 32) choose(a, t, row);
  if constexpr (kPlans) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      last = atomicAdd(ended, 1) == static_cast<int32_t>(gridDim.x) - 1;
      if (last) *ended = 0;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    plan<kChooseThreads>(choice, reinterpret_cast<int32_t*>(memory));
  }
}

constexpr int kPlanThreads = 1024;

__global__ void __launch_bounds__(kPlanThreads) plan_kernel(const __grid_constant__ Choice a) {
  begin_dependent();
  plan<kPlanThreads>(a, dynamic_shared<int32_t>());
}

}  // namespace

void choose_experts(cudaStream_t stream, const Chooser& a, int64_t rows) {
  launch_dependent(stream, "route", blocks_for(rows, 1), kChooseThreads, candidate_bytes(a.experts, a.chosen),
                   choose_kernel<false>, a, Choice{}, nullptr);
}

void choose_groups(cudaStream_t stream, const Chooser& a, const Choice& choice, int32_t* ended) {
  const size_t shared = std::max(candidate_bytes(a.experts, a.chosen), plan_bytes(choice.held));
  launch_dependent(stream, "route", blocks_for(choice.rows, 1), kChooseThreads, shared, choose_kernel<true>,
                   a, choice, ended);
}

void plan_groups(cudaStream_t stream, const Choice& a) {
  launch_dependent(stream, "experts", 1, kPlanThreads, plan_bytes(a.held), plan_kernel, a);
}

}  // namespace godwit::sm90
