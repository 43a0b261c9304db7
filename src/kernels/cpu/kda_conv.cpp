// The short causal convolution with SiLU over q|k|v (glm5_next spec §8.2), and what it remembers.
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/limits.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/kda_conv.cpp"
#include "hwy/foreach_target.h"
// clang-format off
#include "kernels/cpu/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {
namespace {

// out[c] = silu(sum_i weight[i][c] source[i][c]), taps oldest first.
void conv_row(const float* const* source, const float* const* weight, int32_t taps, int64_t channels,
              float* out) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  for (int64_t c = 0; c < channels; c += lanes) {
    VF sum = hn::Zero(F32());
    for (int32_t i = 0; i < taps; ++i)
      sum = hn::MulAdd(load_some(weight[i] + c, channels - c), load_some(source[i] + c, channels - c), sum);
    store_some(silu_of(sum), out + c, channels - c);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::cpu {

HWY_EXPORT(conv_row);

namespace {

constexpr int64_t kChannels = 256;  // of one task

void load_as_float(const std::byte* p, DType dtype, int64_t first, int64_t n, float* out) {
  if (dtype == DType::f32) {
    std::memcpy(out, reinterpret_cast<const float*>(p) + first, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < n; ++i) out[i] = to_float(reinterpret_cast<const bf16*>(p)[first + i]);
}
void store_as(std::byte* p, DType dtype, int64_t first, int64_t n, const float* x) {
  if (dtype == DType::f32) {
    std::memcpy(reinterpret_cast<float*>(p) + first, x, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < n; ++i) reinterpret_cast<bf16*>(p)[first + i] = to_bf16(x[i]);
}

// One sequence times channels [c0, c0 + channels).
void conv_channels(const kernels::KdaConv& a, const kernels::Sequence& s, int64_t c0, int64_t channels) {
  const int32_t before = a.taps - 1;
  const int64_t width = a.raw.cols;
  const DType dtype = a.state.window_dtype;
  std::byte* slot = a.state.base + s.slot * a.state.slot_stride;
  std::byte* window = slot + a.state.window_offset;
  float weight[kMaxTaps][kChannels];
  float past[kMaxTaps][kChannels];  // the window in f32; zeros before position 0
  const float* weights[kMaxTaps];
  for (int32_t i = 0; i < a.taps; ++i) {
    for (int64_t c = 0; c < channels; ++c) weight[i][c] = a.weight[(c0 + c) * a.taps + i];
    weights[i] = weight[i];
  }
  for (int32_t i = 0; i < before; ++i) {
    if (s.first == 0)
      std::memset(past[i], 0, static_cast<size_t>(channels) * sizeof(float));
    else
      load_as_float(window, dtype, i * width + c0, channels, past[i]);
  }

  const auto remember = [&](std::byte* to, int64_t row, const float* from) {
    store_as(to, dtype, row * width + c0, channels, from);
  };
  // Raw inputs by row of this step; rows before it come from the window. They pass through the window's type,
  // so that a row's taps do not depend on the step they came in: a ring of the newest holds them rounded.
  float rounded[kMaxTaps][kChannels];
  const auto input = [&](int64_t r) -> const float* {
    if (r < 0) return past[r + before];
    return dtype == DType::f32 ? a.raw.row<float>(s.row + r) + c0 : rounded[r % a.taps];
  };
  const bool verify = s.kind == kernels::RowKind::verify;
  for (int64_t r = 0; r < s.rows; ++r) {
    const float* raw = a.raw.row<float>(s.row + r) + c0;
    for (int64_t c = 0; dtype != DType::f32 && c < channels; ++c)
      rounded[r % a.taps][c] = to_float(to_bf16(raw[c]));
    const float* source[kMaxTaps];
    for (int32_t i = 0; i < a.taps; ++i) source[i] = input(r - before + i);
    HWY_DYNAMIC_DISPATCH(conv_row)(source, weights, a.taps, channels, a.out.row<float>(s.row + r) + c0);
    if (verify) remember(slot + a.state.pending_raw_offset, r, raw);
  }
  // Verify rows stay pending: the committed window moves when they are replayed.
  if (verify) return;
  for (int32_t i = 0; i < before; ++i) remember(window, i, input(s.rows - before + i));
}

}  // namespace

void CpuOps::kda_conv(const StepView& step, const kernels::KdaConv& a) {
  GODWIT_ASSERT(a.taps <= kMaxTaps);
  const int64_t blocks = (a.raw.cols + kChannels - 1) / kChannels;
  pool_.run(blocks * step.sequences, step.rows * a.raw.cols * 16, [&](int64_t task, int) {
    const int64_t c0 = task % blocks * kChannels;
    conv_channels(a, step.sequence[task / blocks], c0, std::min(kChannels, a.raw.cols - c0));
  });
}

}  // namespace godwit::cpu
#endif  // HWY_ONCE
