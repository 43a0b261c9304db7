// Dot products of a few query heads with four stored rows: what the indexer and attention score with.
#include "kernels/cache_format.h"
#include "kernels/cpu/simd-inl.h"

#if defined(GODWIT_CPU_DOTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GODWIT_CPU_DOTS_INL_H_
#undef GODWIT_CPU_DOTS_INL_H_
#else
#define GODWIT_CPU_DOTS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {

using V4 = hn::Vec<hn::FixedTag<float, 4>>;

// Stored rows (kernels/cache_format.h), read as f32: columns c, c + 1, … of which `left` are there.
template <class T>
struct ValueRow {
  const T* values;

  explicit ValueRow(const kernels::StoredRow& row)
      : values(static_cast<const T*>(static_cast<const void*>(row.values))) {}
  HWY_INLINE VF load(int64_t c, int64_t left) const { return load_some(values + c, left); }
};
struct CodeRow {
  const uint8_t* codes;
  const float* scales;

  explicit CodeRow(const kernels::StoredRow& row)
      : codes(reinterpret_cast<const uint8_t*>(row.values)), scales(row.scales) {}
  // Groups are multiples of every vector length.
  HWY_INLINE VF load(int64_t c, int64_t left) const {
    const hn::Rebind<uint8_t, F32> d;
    const auto code = left >= static_cast<int64_t>(hn::Lanes(d))
                          ? hn::LoadU(d, codes + c)
                          : load_part(d, codes + c, static_cast<size_t>(left));
    return hn::Mul(decode_codes(code), hn::Set(F32(), scales[c / kFp8Block] * kCodeFactor));
  }
};

// out[h] = {q_h · row_0, …, q_h · row_3}; q rows `width` apart. Each product has the order of a linear's.
template <int kHeads, class Row>
HWY_INLINE void dot_tile(const float* q, const Row* rows, int64_t width, V4* out) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF sum[kHeads][4];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h)
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) sum[h][i] = hn::Zero(d);
  const auto accumulate = [&](int64_t c, int64_t left) HWY_ATTR {
    VF x[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) x[i] = rows[i].load(c, left);
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const VF q_h = load_some(q + h * width + c, left);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) sum[h][i] = hn::MulAdd(q_h, x[i], sum[h][i]);
    }
  };
  int64_t c = 0;
  for (; c + lanes <= width; c += lanes) accumulate(c, lanes);
  if (c < width) accumulate(c, width - c);
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) out[h] = sum_lanes4(sum[h][0], sum[h][1], sum[h][2], sum[h][3]);
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
