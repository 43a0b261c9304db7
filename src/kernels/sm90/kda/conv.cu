// kda_conv and the window part of kda_replay (glm5_next spec §8.2). Taps that lie before the step come from
// the slot's window. Sequences of the decode family have few rows: a thread walks those of a channel and
// moves the window at the end. Prompts are cut into short runs, and a kernel of its own moves the window
// after every tap has been read.
#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/kda/slot.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {
namespace {

using kernels::RowKind;
using kernels::Sequence;

constexpr int kThreads = 256;
constexpr int kMaxTaps = static_cast<int>(kMaxConvTaps);
constexpr int kRun = 8;  // rows of a prompt that a thread walks

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

// A thread takes a channel of kRun consecutive prompt rows, which may be of several sequences: each value is
// read once for all its taps. `blocks`: of a run.
__global__ void __launch_bounds__(kThreads) conv_kernel(StepView step, Conv a, uint32_t blocks) {
  begin_dependent();
  const uint32_t run = blockIdx.x / blocks;
  const int64_t c = int64_t{blockIdx.x - run * blocks} * kThreads + threadIdx.x;
  if (c >= a.channels) return;
  const int64_t first = step.decode_rows + int64_t{run} * kRun;
  float weight[kMaxTaps];  // [age]
#pragma unroll
  for (int age = 0; age < kMaxTaps; ++age)
    weight[age] = age < a.taps ? a.weight[c * a.taps + a.taps - 1 - age] : 0.0f;
  float now[kRun];
#pragma unroll
  for (int r = 0; r < kRun; ++r)
    now[r] = rounded_to(a.state.window_dtype, a.raw(min(first + r, int64_t{step.rows} - 1))[c]);
  float past[kMaxTaps - 1];  // [age - 1]
  int32_t current = -1;
#pragma unroll
  for (int r = 0; r < kRun; ++r) {
    const int64_t t = first + r;
    if (t >= step.rows) return;
    const int32_t own = step.row_sequence[t];
    if (own != current) {
      current = own;
      const Sequence& s = step.sequence[own];
      const KdaSlot slot(a.state, s.slot);
#pragma unroll
      for (int age = 1; age < kMaxTaps; ++age)
        past[age - 1] = age < a.taps ? raw_at(a, s, slot, t - s.row - age, c) : 0.0f;
    }
    float sum = weight[0] * now[r];
#pragma unroll
    for (int age = 1; age < kMaxTaps; ++age) {
      if (age < a.taps) sum = fmaf(weight[age], past[age - 1], sum);
    }
    a.out(t)[c] = silu(sum);
#pragma unroll
    for (int age = kMaxTaps - 1; age > 1; --age) past[age - 1] = past[age - 2];
    past[0] = now[r];
  }
}

Conv conv_of(const kernels::KdaConv& a) {
  return {rows_of<const float>(a.raw), a.weight, a.taps, a.raw.cols, a.state, rows_of<float>(a.out)};
}

// One thread a channel of a decode sequence; the same sums as conv_kernel.
__global__ void __launch_bounds__(kThreads) decode_kernel(StepView step, Conv a) {
  begin_dependent();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= step.decode_sequences * a.channels) return;
  const Sequence& s = step.sequence[i / a.channels];
  const int64_t c = i % a.channels;
  const KdaSlot slot(a.state, s.slot);
  const DType dtype = a.state.window_dtype;
  const float* w = a.weight + c * a.taps;
  float past[kMaxTaps - 1];  // [age - 1]
#pragma unroll
  for (int age = 1; age < kMaxTaps; ++age) past[age - 1] = age < a.taps ? raw_at(a, s, slot, -age, c) : 0.0f;
  for (int32_t r = 0; r < s.rows; ++r) {
    const float now = rounded_to(dtype, a.raw(s.row + r)[c]);
    float sum = w[a.taps - 1] * now;
#pragma unroll
    for (int age = 1; age < kMaxTaps; ++age) {
      if (age < a.taps) sum = fmaf(w[a.taps - 1 - age], past[age - 1], sum);
    }
    a.out(s.row + r)[c] = silu(sum);
    if (s.kind == RowKind::verify) store(slot.pending_raw(), dtype, r * a.channels + c, now);
#pragma unroll
    for (int age = kMaxTaps - 1; age > 1; --age) past[age - 1] = past[age - 2];
    past[0] = now;
  }
  if (s.kind == RowKind::verify) return;
#pragma unroll
  for (int age = 1; age < kMaxTaps; ++age) {
    if (age < a.taps) store(slot.window(), dtype, (a.taps - 1 - age) * a.channels + c, past[age - 1]);
  }
}

// One thread a sequence and channel. Entries move to the front, so ascending order overwrites nothing unread.
__global__ void __launch_bounds__(kThreads) commit_kernel(StepView step, Conv a) {
  begin_dependent();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t n = step.decode_sequences + i / a.channels;
  if (n >= step.sequences) return;
  const Sequence& s = step.sequence[n];
  if (s.rows == 0) return;
  const int64_t c = i % a.channels;
  const KdaSlot slot(a.state, s.slot);
  for (int32_t e = 0; e < a.taps - 1; ++e) {
    const float value = raw_at(a, s, slot, s.rows - (a.taps - 1) + e, c);
    store(slot.window(), a.state.window_dtype, e * a.channels + c, value);
  }
}

__global__ void __launch_bounds__(kThreads) replay_window_kernel(StepView step, int32_t first, int32_t taps,
                                                                 int64_t channels, kernels::KdaState state) {
  begin_dependent();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= (step.sequences - first) * channels) return;
  const Sequence& s = step.sequence[first + i / channels];
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
  if (step.decode_sequences > 0) {
    const Conv c = conv_of(a);
    launch_dependent(stream, "kda_conv", blocks_for(step.decode_sequences * c.channels, kThreads), kThreads,
                     0, decode_kernel, step, c);
  }
  kda_conv_prefill(stream, step, a);
}

void kda_conv_prefill(cudaStream_t stream, const StepView& step, const kernels::KdaConv& a) {
  if (step.decode_rows == step.rows) return;
  const Conv c = conv_of(a);
  const int64_t runs = (step.rows - step.decode_rows + kRun - 1) / kRun;
  const unsigned of_run = blocks_for(c.channels, kThreads);
  launch_dependent(stream, "kda_conv", blocks_for(runs * of_run, 1), kThreads, 0, conv_kernel, step, c,
                   of_run);
  kda_window(stream, step, a);
}

void kda_window(cudaStream_t stream, const StepView& step, const kernels::KdaConv& a) {
  const Conv c = conv_of(a);
  launch_dependent(stream, "kda_conv",
                   blocks_for((step.sequences - step.decode_sequences) * c.channels, kThreads), kThreads, 0,
                   commit_kernel, step, c);
}

void replay_window(cudaStream_t stream, const StepView& step, const kernels::KdaReplay& a, int32_t first) {
  const int64_t channels = 3 * a.heads * a.head_dim;
  launch_dependent(stream, "kda_replay", blocks_for((step.sequences - first) * channels, kThreads), kThreads,
                   0, replay_window_kernel, step, first, a.taps, channels, a.state);
}

}  // namespace godwit::sm90
