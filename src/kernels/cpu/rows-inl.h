// Sums over one row, in a fixed order: four interleaved vectors of partial sums, then their lanes.
#include <cmath>

#include "kernels/cpu/simd-inl.h"

#if defined(GODWIT_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GODWIT_CPU_ROWS_INL_H_
#undef GODWIT_CPU_ROWS_INL_H_
#else
#define GODWIT_CPU_ROWS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {

// sum of (x - shift)^2
HWY_INLINE float sum_of_squares(const float* x, int64_t n, float shift = 0) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF vshift = hn::Set(d, shift);
  VF s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const VF a = hn::Sub(hn::LoadU(d, x + i), vshift);
    const VF b = hn::Sub(hn::LoadU(d, x + i + lanes), vshift);
    const VF c = hn::Sub(hn::LoadU(d, x + i + 2 * lanes), vshift);
    const VF e = hn::Sub(hn::LoadU(d, x + i + 3 * lanes), vshift);
    s0 = hn::MulAdd(a, a, s0);
    s1 = hn::MulAdd(b, b, s1);
    s2 = hn::MulAdd(c, c, s2);
    s3 = hn::MulAdd(e, e, s3);
  }
  for (; i + lanes <= n; i += lanes) {
    const VF a = hn::Sub(hn::LoadU(d, x + i), vshift);
    s0 = hn::MulAdd(a, a, s0);
  }
  float tail = 0;
  for (; i < n; ++i) tail += (x[i] - shift) * (x[i] - shift);
  return sum_lanes(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))) + tail;
}

HWY_INLINE float sum_of(const float* x, int64_t n) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF s = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) s = hn::Add(s, hn::LoadU(d, x + i));
  float tail = 0;
  for (; i < n; ++i) tail += x[i];
  return sum_lanes(s) + tail;
}

// out = weight * x * factor
HWY_INLINE void scale_row(const float* x, const float* weight, float factor, int64_t n, float* out) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF f = hn::Set(d, factor);
  for (int64_t i = 0; i < n; i += lanes) {
    const VF v = hn::Mul(load_some(weight + i, n - i), hn::Mul(load_some(x + i, n - i), f));
    store_some(v, out + i, n - i);
  }
}

// out = weight * x / sqrt(mean(x^2) + eps)
HWY_INLINE void rms_row(const float* x, const float* weight, float eps, int64_t n, float* out) {
  const float mean = sum_of_squares(x, n) / static_cast<float>(n);
  scale_row(x, weight, 1.0f / std::sqrt(mean + eps), n, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
