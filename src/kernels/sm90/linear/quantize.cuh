// The activation quantiser of kernels/quantize.h (kernels spec §2.3), bit for bit: one warp a group of 128.
#pragma once

#include "kernels/quantize.h"
#include "kernels/sm90/device/common.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {

// Of a group whose largest magnitude this is.
__device__ inline float scale_of(float largest, bool has_nan) {
  return has_nan ? nanf("") : __fdiv_rn(largest, kernels::kE4m3Max);
}
__device__ inline uint32_t four_codes(const float4& v) {
  const auto two = [](float x, float y) {
    return uint32_t{__nv_cvt_float2_to_fp8x2(float2{x, y}, __NV_SATFINITE, __NV_E4M3)};
  };
  return two(v.x, v.y) | two(v.z, v.w) << 16;
}
// Codes of v / scale.
__device__ inline uint32_t codes_of(const float4& v, float scale) {
  // A product with the reciprocal is a rounded quotient to about 2^-22 of itself. Where a little less and a
  // little more have the same code, so has the quotient.
  const float r = fast_reciprocal(scale);
  const auto codes_near = [&](float factor) {
    return four_codes({v.x * r * factor, v.y * r * factor, v.z * r * factor, v.w * r * factor});
  };
  const uint32_t codes = codes_near(1 - 0x1p-20f);
  if (codes == codes_near(1 + 0x1p-20f) && scale > 0x1p-100f && scale < 0x1p100f) return codes;
  if (scale == 0) return 0;
  return four_codes(
      {__fdiv_rn(v.x, scale), __fdiv_rn(v.y, scale), __fdiv_rn(v.z, scale), __fdiv_rn(v.w, scale)});
}

// A group of 128 values, four of each lane.
struct EncodedFour {
  uint32_t codes;  // of this lane's
  float scale;     // of the group
};
__device__ inline EncodedFour encode_group(const float4& v) {
  float largest = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
  const bool has_nan = __any_sync(0xffffffffu, isnan(v.x) || isnan(v.y) || isnan(v.z) || isnan(v.w));
  for (int offset = 16; offset > 0; offset /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  }
  const float scale = scale_of(largest, has_nan);
  return {codes_of(v, scale), scale};
}

// Columns [128 group, 128 group + 128) of a row of `columns` values; what lies past its end is zero codes.
template <class X>
__device__ inline void quantize_group(const X* x, int64_t columns, const Quantized& to, int64_t row,
                                      int64_t group) {
  const int64_t k = group * kFp8Block + 4 * (threadIdx.x % 32);
  float v[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) v[j] = k + j < columns ? load(x + k + j) : 0.0f;
  const EncodedFour encoded = encode_group({v[0], v[1], v[2], v[3]});
  reinterpret_cast<uint32_t*>(to.codes + row * to.padded)[k / 4] = encoded.codes;
  if (threadIdx.x % 32 == 0) to.scales[row * (to.padded / kFp8Block) + group] = encoded.scale;
}

}  // namespace godwit::sm90
