// kda_conv and the window part of kda_replay (glm5_next spec §8.2). Taps that lie before the step come from
// the slot's window; the window moves in a kernel of its own, after every tap has been read.
#include "kernels/sm90/kda/slot.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {
namespace {

using kernels::RowKind;
using kernels::Sequence;

constexpr int kThreads = 256;

struct Conv {
  Rows<const float> raw;  // [T, channels]
  const float* weight;    // [channels, taps]
  int32_t taps;
  int64_t channels;  // 3 W
  kernels::KdaState state;
  Rows<float> out;
};

// Row `index` of a sequence's rows, counted from its first; negative ones lie in the window.
__device__ float raw_at(const Conv& a, const Sequence& s, const KdaSlot& slot, int64_t index, int64_t c) {
  if (index >= 0) return rounded_to(a.state.window_dtype, a.raw(s.row + index)[c]);
  if (s.first == 0) return 0;
  return load(slot.window(), a.state.window_dtype, (a.taps - 1 + index) * a.channels + c);
}

__global__ void __launch_bounds__(kThreads) conv_kernel(StepView step, Conv a) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= step.rows * a.channels) return;
  const int64_t t = i / a.channels, c = i % a.channels;
  const Sequence& s = step.sequence[step.row_sequence[t]];
  const KdaSlot slot(a.state, s.slot);
  const int64_t index = t - s.row;
  const float* w = a.weight + c * a.taps;
  const float now = raw_at(a, s, slot, index, c);
  float sum = w[a.taps - 1] * now;
  for (int32_t age = 1; age < a.taps; ++age) {
    sum = fmaf(w[a.taps - 1 - age], raw_at(a, s, slot, index - age, c), sum);
  }
  a.out(t)[c] = silu(sum);
  if (s.kind == RowKind::verify) {
    store(slot.pending_raw(), a.state.window_dtype, index * a.channels + c, now);
  }
}

// One thread a sequence and channel. Entries move to the front, so ascending order overwrites nothing unread.
__global__ void __launch_bounds__(kThreads) commit_kernel(StepView step, Conv a) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= step.sequences * a.channels) return;
  const Sequence& s = step.sequence[i / a.channels];
  if (s.kind == RowKind::verify || s.rows == 0) return;
  const int64_t c = i % a.channels;
  const KdaSlot slot(a.state, s.slot);
  for (int32_t e = 0; e < a.taps - 1; ++e) {
    const float value = raw_at(a, s, slot, s.rows - (a.taps - 1) + e, c);
    store(slot.window(), a.state.window_dtype, e * a.channels + c, value);
  }
}

__global__ void __launch_bounds__(kThreads)
    replay_window_kernel(StepView step, int32_t taps, int64_t channels, kernels::KdaState state) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= step.sequences * channels) return;
  const Sequence& s = step.sequence[i / channels];
  if (s.replay == 0) return;
  const int64_t c = i % channels;
  const KdaSlot slot(state, s.slot);
  const DType dtype = state.window_dtype;
  for (int32_t e = 0; e < taps - 1; ++e) {
    const int64_t index = s.replay - (taps - 1) + e;  // among the pending rows; before them lies the window
    float value = 0;
    if (index >= 0) {
      value = load(slot.pending_raw(), dtype, index * channels + c);
    } else if (s.first != s.replay) {
      value = load(slot.window(), dtype, (taps - 1 + index) * channels + c);
    }
    store(slot.window(), dtype, e * channels + c, value);
  }
}

}  // namespace

void kda_conv(cudaStream_t stream, const StepView& step, const kernels::KdaConv& a) {
  if (step.rows == 0) return;
  const Conv c{rows_of<const float>(a.raw), a.weight, a.taps, a.raw.cols, a.state, rows_of<float>(a.out)};
  conv_kernel<<<blocks_for(step.rows * c.channels, kThreads), kThreads, 0, stream>>>(step, c);
  check_launch("kda_conv");
  commit_kernel<<<blocks_for(step.sequences * c.channels, kThreads), kThreads, 0, stream>>>(step, c);
  check_launch("kda_conv");
}

void replay_window(cudaStream_t stream, const StepView& step, const kernels::KdaReplay& a) {
  const int64_t channels = 3 * a.heads * a.head_dim;
  replay_window_kernel<<<blocks_for(step.sequences * channels, kThreads), kThreads, 0, stream>>>(
      step, a.taps, channels, a.state);
  check_launch("kda_replay");
}

}  // namespace godwit::sm90
