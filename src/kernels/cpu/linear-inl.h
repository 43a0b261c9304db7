// Register tiles of the dot-product kernel and the three ways a weight row is read.
#include "kernels/cpu/simd-inl.h"

#if defined(GODWIT_CPU_LINEAR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GODWIT_CPU_LINEAR_INL_H_
#undef GODWIT_CPU_LINEAR_INL_H_
#else
#define GODWIT_CPU_LINEAR_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {

// A reader of weight rows: row(n) gives a cursor, address(cursor) its first weight of kBytes in memory,
// scale(cursor, k) what holds for the block of kBlock columns from k on, full and part the weights k, k + 1,
// … in f32.
constexpr int64_t kOneBlock = int64_t{1} << 40;
struct NoScale {};

struct F32Rows {
  const float* data;
  int64_t in, stride;

  using Cursor = const float*;
  static constexpr int64_t kBytes = 4;
  static constexpr int64_t kBlock = kOneBlock;
  static NoScale scale(Cursor, int64_t) { return {}; }
  static const void* address(Cursor c) { return c; }
  int64_t columns() const { return in; }
  Cursor row(int64_t n) const { return data + n * stride; }
  HWY_INLINE VF full(Cursor c, int64_t k, NoScale) const { return hn::LoadU(F32(), c + k); }
  HWY_INLINE VF part(Cursor c, int64_t k, int64_t left) const { return load_some(c + k, left); }
  void widen_row(int64_t n, float* out, int64_t padded) const {
    std::memcpy(out, row(n), static_cast<size_t>(in) * sizeof(float));
    std::memset(out + in, 0, static_cast<size_t>(padded - in) * sizeof(float));
  }
};

// The reader's rows in f32 at `out`, zeros from `in` to `padded`, which is a multiple of every vector length.
template <class Reader>
HWY_INLINE void widen_with(const Reader& r, int64_t n, float* out, int64_t padded) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  const auto cursor = r.row(n);
  int64_t k = 0;
  for (; k + lanes <= r.in; k += lanes) hn::StoreU(r.full(cursor, k, r.scale(cursor, k)), F32(), out + k);
  for (; k < padded; k += lanes) {
    hn::StoreU(k < r.in ? r.part(cursor, k, r.in - k) : hn::Zero(F32()), F32(), out + k);
  }
}

struct Bf16Rows {
  const bf16* data;
  int64_t in, stride;

  using Cursor = const bf16*;
  static constexpr int64_t kBytes = 2;
  static constexpr int64_t kBlock = kOneBlock;
  static NoScale scale(Cursor, int64_t) { return {}; }
  static const void* address(Cursor c) { return c; }
  int64_t columns() const { return in; }
  Cursor row(int64_t n) const { return data + n * stride; }
  HWY_INLINE VF full(Cursor c, int64_t k, NoScale) const {
    return widen(hn::LoadU(hn::Rebind<uint16_t, F32>(), &c[k].bits));
  }
  HWY_INLINE VF part(Cursor c, int64_t k, int64_t left) const { return load_some(c + k, left); }
  void widen_row(int64_t n, float* out, int64_t padded) const { widen_with(*this, n, out, padded); }
};

// e4m3 codes times their block scale: one rounding, the same in every tile.
struct F8Rows {
  const uint8_t* data;
  int64_t in, stride;
  const float* scales;
  int64_t scale_stride;

  struct Cursor {
    const uint8_t* code;
    const float* scale;
  };
  static constexpr int64_t kBytes = 1;
  static constexpr int64_t kBlock = kFp8Block;
  static const void* address(Cursor c) { return c.code; }
  int64_t columns() const { return in; }
  Cursor row(int64_t n) const { return {data + n * stride, scales + n / kFp8Block * scale_stride}; }
  static HWY_INLINE VF scale(Cursor c, int64_t k) {
    return hn::Set(F32(), c.scale[k / kFp8Block] * kCodeFactor);
  }
  HWY_INLINE VF full(Cursor c, int64_t k, VF block_scale) const {
    return hn::Mul(decode_codes(hn::LoadU(hn::Rebind<uint8_t, F32>(), c.code + k)), block_scale);
  }
  HWY_INLINE VF part(Cursor c, int64_t k, int64_t left) const {
    const hn::Rebind<uint8_t, F32> d;
    return hn::Mul(decode_codes(load_part(d, c.code + k, static_cast<size_t>(left))), scale(c, k));
  }
  void widen_row(int64_t n, float* out, int64_t padded) const { widen_with(*this, n, out, padded); }
};

// Starts the loads of the kColumns rows after the ones a tile reads, its share at column k. A single row of x
// uses each weight once, so it waits for memory; several rows do not.
template <int kColumns, class Reader>
HWY_INLINE void fetch_next_rows(const Reader& weights, typename Reader::Cursor row, int64_t k,
                                int64_t lanes) {
  const char* next = static_cast<const char*>(Reader::address(row)) +
                     (weights.stride * kColumns + k * kColumns) * Reader::kBytes;
  for (int64_t b = 0; b < lanes * kColumns * Reader::kBytes; b += 64) __builtin_prefetch(next + b);
}

// kRows rows of x times kColumns rows of weights from n on; `valid` of them exist (the others repeat the
// last).
template <int kRows, int kColumns, class Reader>
HWY_INLINE void tile(const Reader& weights, const float* HWY_RESTRICT x, int64_t x_stride, int64_t k_end,
                     int64_t n, int64_t valid, float* HWY_RESTRICT out, int64_t out_stride) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF sum[kRows][kColumns];
  typename Reader::Cursor w[kColumns];
#pragma GCC unroll 8
  for (int c = 0; c < kColumns; ++c) {
    w[c] = weights.row(n + (c < valid ? c : valid - 1));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sum[r][c] = hn::Zero(d);
  }
  int64_t k = 0;
  while (k + lanes <= k_end) {
    const int64_t block_end = k_end - k < Reader::kBlock ? k_end : k + Reader::kBlock;
    decltype(Reader::scale(w[0], 0)) scale[kColumns];
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) scale[c] = Reader::scale(w[c], k);
    for (; k + lanes <= block_end; k += lanes) {
      if constexpr (kRows == 1) fetch_next_rows<kColumns>(weights, w[0], k, lanes);
      VF column[kColumns];
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) column[c] = weights.full(w[c], k, scale[c]);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const VF row = hn::LoadU(d, x + r * x_stride + k);
#pragma GCC unroll 8
        for (int c = 0; c < kColumns; ++c) sum[r][c] = hn::MulAdd(row, column[c], sum[r][c]);
      }
    }
  }
  if (k < k_end) {
    const int64_t left = k_end - k;
    for (int c = 0; c < kColumns; ++c) {
      const VF column = weights.part(w[c], k, left);
      for (int r = 0; r < kRows; ++r) {
        const VF row = load_part(d, x + r * x_stride + k, static_cast<size_t>(left));
        sum[r][c] = hn::MulAdd(row, column, sum[r][c]);
      }
    }
  }
  const hn::FixedTag<float, 4> d4;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; c += 4) {
      const auto four = sum_lanes4(sum[r][c], sum[r][c + 1], sum[r][c + 2], sum[r][c + 3]);
      float* to = out + r * out_stride + c;
      if (c + 4 <= valid) {
        hn::StoreU(four, d4, to);
      } else {
        HWY_ALIGN float lanes4[4];
        hn::Store(four, d4, lanes4);
        for (int i = 0; c + i < valid; ++i) to[i] = lanes4[i];
      }
    }
  }
}

template <int kRows, int kColumns, class Reader>
void tiles(const Reader& weights, const float* x, int64_t x_stride, int64_t k, int64_t first, int64_t last,
           float* out, int64_t out_stride) {
  for (int64_t n = first; n < last; n += kColumns) {
    const int64_t valid = last - n < kColumns ? last - n : kColumns;
    tile<kRows, kColumns>(weights, x, x_stride, k, n, valid, out + n, out_stride);
  }
}

// One group of n <= 128 values through the quantiser of kernels/quantize.h and back, bit for bit: scale =
// max|x| / 448, code = e4m3(x / scale) to nearest even, result code * scale. A NaN makes the group NaN.
HWY_INLINE void quantise_group(const float* x, int64_t n, float* out) {
  const F32 d;
  const hn::Rebind<uint32_t, F32> du;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF largest = hn::Zero(d);
  VF unordered = hn::Zero(d);  // NaN once any value was
  for (int64_t i = 0; i < n; i += lanes) {
    const VF v = load_some(x + i, n - i);
    largest = hn::Max(hn::Abs(v), largest);
    unordered = hn::Add(unordered, hn::IfThenElseZero(hn::IsNaN(v), v));
  }
  float scale = hn::GetLane(hn::MaxOfLanes(d, largest)) / 448.0f;
  const float nan = sum_lanes(unordered);
  if (nan != nan) scale = nan;
  if (scale == 0) {
    std::memset(out, 0, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  const VF vscale = hn::Set(d, scale);
  const auto mantissa = hn::Set(du, 0xfffffu);
  for (int64_t i = 0; i < n; i += lanes) {
    const VF v = hn::Div(load_some(x + i, n - i), vscale);
    const VF a = hn::Abs(v);
    // Normal: keep three mantissa bits, ties to even. Subnormal (below 2^-6): multiples of 2^-9.
    const auto bits = hn::BitCast(du, a);
    const auto odd = hn::And(hn::ShiftRight<20>(bits), hn::Set(du, 1));
    const auto up = hn::Add(hn::Add(bits, hn::Set(du, 0x7ffffu)), odd);
    const VF normal = hn::Min(hn::Set(d, 448.0f), hn::BitCast(d, hn::AndNot(mantissa, up)));
    const VF small = hn::Mul(hn::Round(hn::Mul(a, hn::Set(d, 512.0f))), hn::Set(d, 0.001953125f));
    const VF code = hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.015625f)), small, normal);
    const VF kept = hn::IfThenElse(hn::IsNaN(a), a, code);
    store_some(hn::Mul(hn::CopySign(kept, v), vscale), out + i, n - i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
