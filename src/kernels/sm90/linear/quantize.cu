#include "kernels/sm90/linear/quantize.cuh"

#include "kernels/sm90/device/pipeline.cuh"

namespace godwit::sm90 {
namespace {

constexpr int kWarps = 8;

template <class X>
__global__ void __launch_bounds__(32 * kWarps)
    quantize_kernel(Rows<const X> x, int32_t rows, int64_t columns, Quantized to, const Weight* only_if_fp8) {
  begin_dependent();
  if (only_if_fp8 != nullptr && only_if_fp8->data.dtype != DType::f8_e4m3) return;
  const auto groups = static_cast<uint32_t>(to.padded / kFp8Block);
  const uint32_t task = blockIdx.x * kWarps + threadIdx.x / 32, row = task / groups;
  if (row < static_cast<uint32_t>(rows)) quantize_group(x(row), columns, to, row, task - row * groups);
}

}  // namespace

void quantize(cudaStream_t stream, const View& x, const Quantized& to, const Weight* only_if_fp8) {
  if (x.rows == 0) return;
  const unsigned blocks = blocks_for(x.rows * (to.padded / kFp8Block), kWarps);
  const auto launch = [&](auto rows) {
    using X = std::remove_cvref_t<decltype(*rows.data)>;
    launch_dependent(stream, "quantize", blocks, 32 * kWarps, 0, quantize_kernel<X>, rows,
                     static_cast<int32_t>(x.rows), x.cols, to, only_if_fp8);
  };
  if (x.dtype == DType::bf16) return launch(rows_of<const bf16>(x));
  launch(rows_of<const float>(x));
}

}  // namespace godwit::sm90
