// history_start (kernels/ops/head.h): clears a slot's counts, then marks and counts its tokens.
#include "kernels/sm90/device/common.cuh"
#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/launches.h"
#include "sample/processors.h"

namespace godwit::sm90 {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) count_kernel(kernels::HistoryStart a) {
  begin_dependent();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.length) return;
  int32_t* count = a.history.counts + a.slot * a.history.stride + a.tokens[i];
  if (i < a.prompt) {
    atomicOr(count, sample::kInPrompt);
  } else {
    atomicAdd(count, 1);
  }
}

}  // namespace

void history_start(cudaStream_t stream, const kernels::HistoryStart& a) {
  int32_t* counts = a.history.counts + a.slot * a.history.stride;
  check(cudaMemsetAsync(counts, 0, static_cast<size_t>(a.history.stride) * sizeof(int32_t), stream),
        "history_start");
  if (a.length == 0) return;
  launch_dependent(stream, "history_start", blocks_for(a.length, kThreads), kThreads, 0, count_kernel, a);
}

}  // namespace godwit::sm90
