// kda_mix of the decode family: which of its two forms a step takes. Both give the same bits.
#include <algorithm>

#include "kernels/sm90/kda/mix.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {

bool fits_kda_mix(const kernels::KdaMix& a) {
  const auto aligned = [](const void* p, int64_t stride_bytes) {
    return reinterpret_cast<uintptr_t>(p) % 16 == 0 && stride_bytes % 16 == 0;
  };
  const auto rows = [&](const View& v) { return v.dtype == DType::f32 && aligned(v.data, v.stride * 4); };
  const auto low_rank = [&](const kernels::Linear& l) {
    return l.w.data.dtype == DType::bf16 && l.w.in() == mix::kDim &&
           aligned(l.w.data.data, l.w.data.stride * 2) && rows(l.x);
  };
  const kernels::KdaState& state = a.conv.state;
  return a.norm.head_dim == mix::kDim && a.conv.taps == mix::kTaps && low_rank(a.forget) &&
         low_rank(a.gate) && rows(a.conv.raw) &&
         aligned(a.norm.out.data, a.norm.out.stride * size_of(a.norm.out.dtype)) &&
         aligned(a.conv.weight, 0) && aligned(a.gates.dt_bias, 0) && aligned(a.norm.weight, 0) &&
         aligned(state.base + state.state_offset, state.slot_stride) && state.pending_key_offset % 16 == 0;
}

void kda_mix(cudaStream_t stream, const StepView& step, const kernels::KdaMix& a, int multiprocessors) {
  const mix::Mix m{
      rows_of<const float>(a.conv.raw),
      rows_of<const float>(a.forget.x),
      rows_of<const float>(a.gate.x),
      rows_of<const float>(a.gates.beta),
      a.conv.weight,
      {static_cast<const bf16*>(a.forget.w.data.data), static_cast<const bf16*>(a.gate.w.data.data)},
      {a.forget.w.data.stride, a.gate.w.data.stride},
      a.gates.a_exp,
      a.gates.dt_bias,
      a.gates.lower_bound,
      a.norm.weight,
      a.norm.eps,
      a.conv.state,
      activation_rows(a.norm.out),
      static_cast<int32_t>(a.gates.beta.cols),
      static_cast<int32_t>(a.norm.out.cols)};
  const DType window = a.conv.state.window_dtype;
  // Clusters that run at once, two blocks on a multiprocessor: they do not fill a GPU to the last one.
  const int64_t clusters = int64_t{2} * multiprocessors * 9 / (10 * mix::kQuarters);
  if (step.decode_sequences * int64_t{m.heads} <= clusters) return mix::launch_few(stream, step, m, window);
  // A block on each multiprocessor.
  const int64_t groups = std::max(1, multiprocessors / m.heads);
  mix::launch_many(stream, step, m, window,
                   static_cast<int32_t>((step.decode_sequences + groups - 1) / groups));
}

}  // namespace godwit::sm90
