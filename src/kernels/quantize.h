// The activation quantiser in front of every FP8 product: the one definition all backends agree on bit for
// bit (kernels spec §2.3, glm5_next spec §3.4).
#pragma once

#include <cmath>
#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace godwit::kernels {

constexpr float kE4m3Max = 448.0f;

constexpr int64_t fp8_groups(int64_t columns) {
  return (columns + kFp8Block - 1) / kFp8Block;
}

// max|x|, NaN when any value is.
inline float largest_magnitude(const float* x, int64_t n) {
  float largest = 0;
  bool has_nan = false;
  for (int64_t i = 0; i < n; ++i) {
    const float a = std::fabs(x[i]);
    has_nan |= std::isnan(a);
    largest = a > largest ? a : largest;
  }
  return has_nan ? NAN : largest;
}

// codes = e4m3(x / scale) by true f32 division, zeros for a scale of zero.
inline void encode_group(const float* x, int64_t n, float scale, f8_e4m3* codes) {
  for (int64_t i = 0; i < n; ++i) codes[i] = scale == 0 ? f8_e4m3{0} : to_e4m3(x[i] / scale);
}

// Quantises one group of n <= 128 values and returns its scale: max|x| / 448 and e4m3(x / scale), both true
// f32 divisions, because a multiply by the reciprocal differs in the last code. A scale of zero (all zeros,
// or so small that the division underflows) gives zero codes without dividing. A NaN anywhere in the group
// makes scale and codes NaN, so that it is never hidden.
inline float quantize_group(const float* x, int64_t n, f8_e4m3* codes) {
  const float scale = largest_magnitude(x, n) / kE4m3Max;
  encode_group(x, n, scale, codes);
  return scale;
}

// One row of `columns` values: codes [columns], scales [fp8_groups(columns)], groups aligned to column 0.
inline void quantize_row(const float* x, int64_t columns, f8_e4m3* codes, float* scales) {
  for (int64_t g = 0; g < fp8_groups(columns); ++g) {
    const int64_t first = g * kFp8Block;
    const int64_t n = columns - first < kFp8Block ? columns - first : kFp8Block;
    scales[g] = quantize_group(x + first, n, codes + first);
  }
}

}  // namespace godwit::kernels
