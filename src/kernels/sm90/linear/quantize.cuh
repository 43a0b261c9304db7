// The activation quantiser of kernels/quantize.h (kernels spec §2.3), bit for bit: one warp a group of 128.
#pragma once

#include "kernels/quantize.h"
#include "kernels/sm90/device/common.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {

// Columns [128 group, 128 group + 128) of a row of `columns` values; what lies past its end is zero codes.
template <class X>
__device__ inline void quantize_group(const X* x, int64_t columns, const Quantized& to, int64_t row,
                                      int64_t group) {
  const int64_t k = group * kFp8Block + 4 * (threadIdx.x % 32);
  float v[4], largest = 0;
  bool has_nan = false;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    v[j] = k + j < columns ? load(x + k + j) : 0.0f;
    has_nan |= isnan(v[j]);
    largest = fmaxf(largest, fabsf(v[j]));
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  }
  has_nan = __any_sync(0xffffffffu, has_nan);
  const float scale = has_nan ? nanf("") : __fdiv_rn(largest, kernels::kE4m3Max);
  uint32_t codes = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint32_t code =
        scale == 0 ? 0u : __nv_cvt_float_to_fp8(__fdiv_rn(v[j], scale), __NV_SATFINITE, __NV_E4M3);
    codes |= code << (8 * j);
  }
  reinterpret_cast<uint32_t*>(to.codes + row * to.padded)[k / 4] = codes;
  if (threadIdx.x % 32 == 0) to.scales[row * (to.padded / kFp8Block) + group] = scale;
}

}  // namespace godwit::sm90
