// The activation quantiser of kernels/quantize.h (kernels spec §2.3), bit for bit: one warp a group of 128.
#include "kernels/quantize.h"

#include "kernels/sm90/device/common.cuh"
#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {
namespace {

constexpr int kWarps = 8;

__global__ void __launch_bounds__(32 * kWarps)
    quantize_kernel(Rows<const float> x, int64_t rows, int64_t columns, Quantized to,
                    const Weight* only_if_fp8) {
  begin_dependent();
  if (only_if_fp8 != nullptr && only_if_fp8->data.dtype != DType::f8_e4m3) return;
  const int64_t groups = to.padded / kFp8Block;
  const int64_t task = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (task >= rows * groups) return;
  const int64_t row = task / groups, group = task % groups;
  const int64_t k = group * kFp8Block + 4 * (threadIdx.x % 32);
  float v[4], largest = 0;
  bool has_nan = false;
  for (int j = 0; j < 4; ++j) {
    v[j] = k + j < columns ? x(row)[k + j] : 0.0f;
    has_nan |= isnan(v[j]);
    largest = fmaxf(largest, fabsf(v[j]));
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  }
  has_nan = __any_sync(0xffffffffu, has_nan);
  const float scale = has_nan ? nanf("") : __fdiv_rn(largest, kernels::kE4m3Max);
  uint32_t codes = 0;
  for (int j = 0; j < 4; ++j) {
    const uint32_t code =
        scale == 0 ? 0u : __nv_cvt_float_to_fp8(__fdiv_rn(v[j], scale), __NV_SATFINITE, __NV_E4M3);
    codes |= code << (8 * j);
  }
  reinterpret_cast<uint32_t*>(to.codes + row * to.padded)[k / 4] = codes;
  if (threadIdx.x % 32 == 0) to.scales[row * groups + group] = scale;
}

}  // namespace

void quantize(cudaStream_t stream, const View& x, const Quantized& to, const Weight* only_if_fp8) {
  if (x.rows == 0) return;
  const unsigned blocks = blocks_for(x.rows * (to.padded / kFp8Block), kWarps);
  launch_dependent(stream, "quantize", blocks, 32 * kWarps, 0, quantize_kernel, rows_of<const float>(x),
                   x.rows, x.cols, to, only_if_fp8);
}

}  // namespace godwit::sm90
