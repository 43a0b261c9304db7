// fp8 rows by one warp a group of 128 values: the device's form of kernels/cache_format.h, bit for bit.
// Lane l of a group of n values holds values 4 l … 4 l + 3; those past n are zero.
#pragma once

#include "kernels/cache_format.h"
#include "kernels/sm90/device/common.cuh"

namespace godwit::sm90 {

// max|x| of the group in every lane, NaN when any value is.
__device__ inline float warp_magnitude(const float (&x)[4]) {
  float largest = 0;
  bool has_nan = false;
  for (int j = 0; j < 4; ++j) {
    has_nan |= isnan(x[j]);
    largest = fmaxf(largest, fabsf(x[j]));
  }
#pragma unroll 1
  for (int o = 16; o > 0; o /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, o));
  return __any_sync(0xffffffffu, has_nan) ? NAN : largest;
}

// kernels::hadamard of n values: the block of a value is the largest power of two that fits behind the blocks
// before it.
__device__ inline void warp_hadamard(float (&x)[4], int n) {
  constexpr int kWhole = static_cast<int>(kFp8Block);
  const int lane = static_cast<int>(threadIdx.x % 32);
  int size[4] = {kWhole, kWhole, kWhole, kWhole};
  if (n < kWhole) {
    int first = 0;
#pragma unroll 1
    for (int block = kWhole / 2; block > 0; block /= 2) {
      if ((n & block) == 0) continue;
      for (int j = 0; j < 4; ++j) size[j] = 4 * lane + j >= first ? block : size[j];
      first += block;
    }
  }
  const auto pair = [&](int i, int k) {
    const float a = x[i], b = x[k];
    x[i] = a + b, x[k] = a - b;
  };
  if (size[0] > 1) pair(0, 1);
  if (size[2] > 1) pair(2, 3);
  if (size[0] > 2) pair(0, 2), pair(1, 3);
#pragma unroll 1
  for (int half = 4; half < n; half *= 2) {
    const float sign = (4 * lane & half) != 0 ? -1.0f : 1.0f;
    for (int j = 0; j < 4; ++j) {
      const float other = __shfl_xor_sync(0xffffffffu, x[j], half / 4);
      if (half < size[j]) x[j] = fmaf(sign, x[j], other);
    }
  }
  for (int j = 0; j < 4; ++j) {  // size^-1/2: a power of two, or that and the root of a half
    const int log2 = __ffs(size[j]) - 1;
    const float power = __uint_as_float(static_cast<uint32_t>(127 - log2 / 2) << 23);
    x[j] *= log2 % 2 != 0 ? power * (1 / sqrtf(2.0f)) : power;
  }
}

// Makes of the values of a latent their quotients by the group's scale, which is returned.
__device__ inline float scale_latent(float (&x)[4]) {
  const float scale = __fdiv_rn(warp_magnitude(x), kernels::kE4m3Max);
  for (int j = 0; j < 4; ++j) x[j] = scale == 0 ? 0.0f : __fdiv_rn(x[j], scale);
  return scale;
}
// Of a turned group with this largest magnitude: a power of two, so that a product with the inverse is the
// quotient.
__device__ inline float turned_scale(float largest) {
  if (isnan(largest)) return largest;
  const uint32_t bits = __float_as_uint(__fdiv_rn(fmaxf(largest, 1e-4f), kernels::kE4m3Max));
  return __uint_as_float((bits + 0x7fffffu) & 0xff800000u);
}
// Likewise of a key or a query of n values, turned.
__device__ inline float turn_and_scale(float (&x)[4], int n) {
  warp_hadamard(x, n);
  const float scale = turned_scale(warp_magnitude(x));
  const float inverse = __fdiv_rn(1.0f, scale);
  for (int j = 0; j < 4; ++j) x[j] *= inverse;
  return scale;
}

__device__ inline uint8_t code_of(float quotient) {
  return __nv_cvt_float_to_fp8(quotient, __NV_SATFINITE, __NV_E4M3);
}

// kernels::meet_keys of one group for fp8 keys.
__device__ inline void meet_coded_keys(float (&x)[4], int n) {
  const float scale = turn_and_scale(x, n);
  for (int j = 0; j < 4; ++j) {
    const f8_e4m3 code{code_of(x[j])};
    x[j] = load(&code) * scale;
  }
}

}  // namespace godwit::sm90
