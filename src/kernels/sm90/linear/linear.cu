// linear and head_linear, plain form: one warp computes one output column of up to kRows rows.
#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/launches.h"
#include "kernels/sm90/linear/dot.cuh"

namespace godwit::sm90 {
namespace {

constexpr int kWarps = 8;

template <class X>
struct PlainProduct {
  Rows<const X> x;       // [rows, heads in]
  Quantized codes;       // of x, f8_e4m3 weights only (heads = 1)
  const void* w;         // [heads outs, in], rows w_stride elements apart
  int64_t w_stride;      //
  const float* scales;   // [outs / 128, in / 128], f8_e4m3 only
  int64_t scale_stride;  //
  Rows<float> out;       // [rows, heads outs]
  int64_t rows, heads, in, outs;
};

template <class W, class X>
__device__ Activations<W, X> activations(const PlainProduct<X>& p, int64_t row, int64_t head) {
  if constexpr (sizeof(W) == 1) {
    return {p.codes.codes + row * p.codes.padded, p.codes.scales + row * (p.codes.padded / kFp8Block)};
  } else {
    return {p.x(row) + head * p.in};
  }
}

// Blocks of the same columns are neighbours, so that their weights come from L2.
template <class W, class X, int kRows, bool kVector>
__global__ void __launch_bounds__(32 * kWarps) linear_kernel(PlainProduct<X> p) {
  begin_dependent();
  const int64_t tiles = (p.rows + kRows - 1) / kRows;
  const int64_t first = blockIdx.x % tiles * kRows;
  const int64_t column = blockIdx.x / tiles * kWarps + threadIdx.x / 32;
  if (column >= p.heads * p.outs) return;
  Activations<W, X> rows[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    rows[r] = activations<W>(p, first + r < p.rows ? first + r : p.rows - 1, column / p.outs);
  }
  const W* w = static_cast<const W*>(p.w) + column * p.w_stride;
  float sum[kRows];
  warp_dot<W, kRows, kVector>(w, p.scales + column / kFp8Block * p.scale_stride, rows, p.in, sum);
  if (threadIdx.x % 32 != 0) return;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (first + r < p.rows) p.out(first + r)[column] = sum[r];
  }
}

template <class W, int kRows, class X>
void launch_rows(cudaStream_t stream, const PlainProduct<X>& p) {
  const int64_t tiles = (p.rows + kRows - 1) / kRows;
  const unsigned blocks = blocks_for(tiles * ((p.heads * p.outs + kWarps - 1) / kWarps), 1);
  const bool x_by_four = sizeof(W) == 1 || loads_by_four<X>(p.x.data, p.x.stride, p.in);
  if (x_by_four && loads_by_four<W>(p.w, p.w_stride, p.in)) {
    launch_dependent(stream, "linear", blocks, 32 * kWarps, 0, linear_kernel<W, X, kRows, true>, p);
  } else {
    launch_dependent(stream, "linear", blocks, 32 * kWarps, 0, linear_kernel<W, X, kRows, false>, p);
  }
}

template <class W, class X>
void launch(cudaStream_t stream, const PlainProduct<X>& p) {
  if (p.rows == 1) return launch_rows<W, 1>(stream, p);
  launch_rows<W, 8>(stream, p);
}

template <class X>
void launch_as(cudaStream_t stream, const View& x, const Quantized& x_codes, const Weight& w, int64_t heads,
               const View& out) {
  const PlainProduct<X> p{
      rows_of<const X>(x), x_codes, w.data.data, w.data.stride, w.scales,       w.scale_stride,
      rows_of<float>(out), x.rows,  heads,       w.in(),        w.out() / heads};
  switch (w.data.dtype) {
    case DType::f32:
      return launch<float>(stream, p);
    case DType::bf16:
      return launch<bf16>(stream, p);
    default:
      return launch<f8_e4m3>(stream, p);
  }
}

}  // namespace

void linear(cudaStream_t stream, const View& x, const Quantized& x_codes, const Weight& w, int64_t heads,
            const View& out) {
  if (x.rows == 0 || w.out() == 0) return;
  if (x.dtype == DType::bf16 && w.data.dtype != DType::f8_e4m3)
    return launch_as<bf16>(stream, x, x_codes, w, heads, out);
  launch_as<float>(stream, x, x_codes, w, heads, out);  // of e4m3 weights: codes are read, not x
}

}  // namespace godwit::sm90
