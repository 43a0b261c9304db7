// Helpers every kernel file shares, compiled once per target. Partial vectors go through the stack: correct
// on every target, and only odd shapes ever need them.
#include <cstring>

#include "hwy/highway.h"
#include "tensor/dtype.h"

#if defined(GODWIT_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GODWIT_CPU_SIMD_INL_H_
#undef GODWIT_CPU_SIMD_INL_H_
#else
#define GODWIT_CPU_SIMD_INL_H_
#endif

#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VF = hn::Vec<F32>;

// The first n < Lanes values at p, zeros after them.
template <class D>
HWY_INLINE hn::Vec<D> load_part(D d, const hn::TFromD<D>* p, size_t n) {
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(D())] = {};
  std::memcpy(lanes, p, n * sizeof(*p));
  return hn::Load(d, lanes);
}
HWY_INLINE void store_part(VF v, float* p, size_t n) {
  HWY_ALIGN float lanes[hn::MaxLanes(F32())];
  hn::Store(v, F32(), lanes);
  std::memcpy(p, lanes, n * sizeof(*p));
}

// A full vector when `left` >= Lanes, else the `left` last values.
HWY_INLINE VF load_some(const float* p, int64_t left) {
  const F32 d;
  return left >= static_cast<int64_t>(hn::Lanes(d)) ? hn::LoadU(d, p)
                                                    : load_part(d, p, static_cast<size_t>(left));
}
HWY_INLINE void store_some(VF v, float* p, int64_t left) {
  const F32 d;
  if (left >= static_cast<int64_t>(hn::Lanes(d)))
    hn::StoreU(v, d, p);
  else
    store_part(v, p, static_cast<size_t>(left));
}

// Eight bf16 or sixteen: widened exactly.
HWY_INLINE VF widen(hn::Vec<hn::Rebind<uint16_t, F32>> bits) {
  const hn::Rebind<uint32_t, F32> du32;
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(du32, bits)));
}
HWY_INLINE VF load_some(const bf16* p, int64_t left) {
  const hn::Rebind<uint16_t, F32> d;
  const uint16_t* u = &p->bits;
  return widen(left >= static_cast<int64_t>(hn::Lanes(d)) ? hn::LoadU(d, u)
                                                          : load_part(d, u, static_cast<size_t>(left)));
}

// The values of e4m3 codes / 256: a code moved to the bits of an f16 is that, subnormals included, so the
// hardware's f16 conversion decodes it.
constexpr float kCodeFactor = 256.0f;
HWY_INLINE VF decode_codes(hn::Vec<hn::Rebind<uint8_t, F32>> code) {
  const hn::Rebind<uint16_t, F32> d16;
  const hn::Rebind<int16_t, F32> di16;
  const hn::Rebind<hwy::float16_t, F32> df16;
  // In the high byte of 16 bits, then one place down and without the copied sign bit: s0eeeemmm0000000.
  const auto high = hn::BitCast(di16, hn::ShiftLeft<8>(hn::PromoteTo(d16, code)));
  const auto bits = hn::And(hn::BitCast(d16, hn::ShiftRight<1>(high)), hn::Set(d16, 0xbf80));
  const VF value = hn::PromoteTo(F32(), hn::BitCast(df16, bits));
  // 0x7f and 0xff are NaN, the only codes that become +-1.875 here.
  const auto nan = hn::Eq(hn::Abs(value), hn::Set(F32(), 1.875f));
  return hn::IfThenElse(nan, hn::NaN(F32()), value);
}

// e^x within 1 ulp; NaN stays NaN, so that a broken row is seen by the draw and not hidden.
HWY_INLINE VF exp_of(VF x) {
  const F32 d;
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
}
// 1 / (1 + e^-x). The exponent is capped where e^88 is still finite; Min keeps a NaN in its second place.
HWY_INLINE VF sigmoid_of(VF x) {
  const F32 d;
  const VF one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, exp_of(hn::Min(hn::Set(d, 88.0f), hn::Neg(x)))));
}
HWY_INLINE VF silu_of(VF x) {
  return hn::Mul(x, sigmoid_of(x));
}

HWY_INLINE float sum_lanes(VF v) {
  const F32 d;
  return hn::GetLane(hn::SumOfLanes(d, v));
}

// {sum a, sum b, sum c, sum d}: the last step of four dot products. The order of the lanes' sum is the same
// for each of the four.
HWY_INLINE hn::Vec<hn::FixedTag<float, 4>> sum_lanes4(VF a, VF b, VF c, VF e) {
  const F32 d;
  const hn::Repartition<double, F32> d64;
  const VF ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const VF ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const auto ab64 = hn::BitCast(d64, ab);
  const auto ce64 = hn::BitCast(d64, ce);
  const VF all = hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, ab64, ce64)),
                         hn::BitCast(d, hn::InterleaveUpper(d64, ab64, ce64)));
#if HWY_MAX_BYTES == 64
  const hn::Half<F32> dh;
  const hn::Half<decltype(dh)> dq;
  const auto half = hn::Add(hn::LowerHalf(dh, all), hn::UpperHalf(dh, all));
  return hn::Add(hn::LowerHalf(dq, half), hn::UpperHalf(dq, half));
#elif HWY_MAX_BYTES == 32
  const hn::Half<F32> dh;
  return hn::Add(hn::LowerHalf(dh, all), hn::UpperHalf(dh, all));
#else
  return all;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
