// The activation quantiser of kernels/quantize.h (kernels spec §2.3), bit for bit: one warp a group of 128.
#pragma once

#include "kernels/quantize.h"
#include "kernels/sm90/device/common.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {

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
  const float scale = has_nan ? nanf("") : __fdiv_rn(largest, kernels::kE4m3Max);
  const auto code = [scale](float value) {
    return scale == 0 ? 0u
                      : uint32_t{__nv_cvt_float_to_fp8(__fdiv_rn(value, scale), __NV_SATFINITE, __NV_E4M3)};
  };
  return {code(v.x) | code(v.y) << 8 | code(v.z) << 16 | code(v.w) << 24, scale};
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
