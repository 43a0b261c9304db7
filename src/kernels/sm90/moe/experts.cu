// Routed experts (glm5_next spec §11.1, §11.3), plain form: every (row, chosen expert) is computed by itself,
// one warp an output; a row's experts are added in ascending id.
#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/launches.h"
#include "kernels/sm90/linear/dot.cuh"

namespace godwit::sm90 {
namespace {

using kernels::ExpertWeights;

constexpr int kWarps = 8;

struct Plan {
  View x;  // [T, D] f32 or bf16
  Quantized x_codes;
  Rows<const int32_t> ids;    // [T, k]
  Rows<const float> weights;  // [T, k]
  const ExpertWeights* experts;
  int32_t first, held;
  float limit;
  int64_t rows, chosen, width, inner_width;
  Rows<float> inner;  // [T k, I]
  Quantized inner_codes;
  Rows<float> out;  // [T, D]
};

// Row n of w times one row of activations, given as they are and as codes.
template <class W, class X>
__device__ float product_as(const Weight& w, int64_t n, const X* x, const Quantized& codes, int64_t row) {
  const W* weights = static_cast<const W*>(w.data.data) + n * w.data.stride;
  Activations<W, X> in;
  const float* scales = nullptr;
  bool by_four = loads_by_four<W>(weights, w.data.stride, w.data.cols);
  if constexpr (sizeof(W) == 1) {
    in = {codes.codes + row * codes.padded, codes.scales + row * (codes.padded / kFp8Block)};
    scales = w.scales + n / kFp8Block * w.scale_stride;
  } else {
    in = {x};
    by_four = by_four && loads_by_four<X>(x, 0, w.data.cols);
  }
  float sum;
  if (by_four) {
    warp_dot<W, 1, true>(weights, scales, &in, w.data.cols, &sum);
  } else {
    warp_dot<W, 1, false>(weights, scales, &in, w.data.cols, &sum);
  }
  return sum;
}

template <class X>
__device__ float product(const Weight& w, int64_t n, const X* x, const Quantized& codes, int64_t row) {
  switch (w.data.dtype) {
    case DType::f32:
      return product_as<float>(w, n, x, codes, row);
    case DType::bf16:
      return product_as<bf16>(w, n, x, codes, row);
    default:
      return product_as<f8_e4m3>(w, n, x, codes, row);
  }
}

template <class X>
__global__ void __launch_bounds__(32 * kWarps) gate_up_kernel(Plan p) {
  begin_dependent();
  const int64_t task = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const int64_t assignment = task / p.inner_width, n = task % p.inner_width;
  if (assignment >= p.rows * p.chosen) return;
  const int64_t t = assignment / p.chosen;
  const int32_t local = p.ids(t)[assignment % p.chosen] - p.first;
  float value = 0;  // of experts of other ranks and past I, so that the quantiser reads nothing undefined
  if (local >= 0 && local < p.held && n < p.experts[local].gate.data.rows) {
    const ExpertWeights& e = p.experts[local];
    const X* x = row_of<X>(p.x, t);
    const float gate = product(e.gate, n, x, p.x_codes, t);
    value = clamped_swiglu(gate, product(e.up, n, x, p.x_codes, t), p.limit);
  }
  if (threadIdx.x % 32 == 0) p.inner(assignment)[n] = value;
}

__global__ void __launch_bounds__(32 * kWarps) down_kernel(Plan p) {
  begin_dependent();
  const int64_t task = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const int64_t t = task / p.width, n = task % p.width;
  if (t >= p.rows) return;
  float sum = 0;
  for (int64_t i = 0; i < p.chosen; ++i) {
    const int32_t local = p.ids(t)[i] - p.first;
    if (local < 0 || local >= p.held) continue;
    const int64_t assignment = t * p.chosen + i;
    const float* inner = p.inner(assignment);
    const float y = product(p.experts[local].down, n, inner, p.inner_codes, assignment);
    sum = fmaf(p.weights(t)[i], y, sum);
  }
  if (threadIdx.x % 32 == 0) p.out(t)[n] = sum;
}

}  // namespace

void experts(cudaStream_t stream, const kernels::Experts& a, const ExpertScratch& scratch) {
  if (a.x.rows == 0) return;
  const Plan p{a.x,
               scratch.x,
               rows_of<const int32_t>(a.ids),
               rows_of<const float>(a.weights),
               a.experts,
               a.first_expert,
               a.expert_count,
               a.limit,
               a.x.rows,
               a.ids.cols,
               a.x.cols,
               scratch.inner_width,
               {scratch.inner, scratch.inner_stride},
               scratch.inner_codes,
               rows_of<float>(a.out)};
  const Weight* gate = a.expert_count > 0 ? &a.experts->gate : nullptr;  // an address on the device
  const View inner{scratch.inner, DType::f32, p.rows * p.chosen, p.inner_width, scratch.inner_stride};
  quantize(stream, a.x, scratch.x, gate);
  launch_dependent(stream, "experts", blocks_for(p.rows * p.chosen * p.inner_width, kWarps), 32 * kWarps, 0,
                   a.x.dtype == DType::bf16 ? gate_up_kernel<bf16> : gate_up_kernel<float>, p);
  quantize(stream, inner, scratch.inner_codes, gate);
  launch_dependent(stream, "experts", blocks_for(p.rows * p.width, kWarps), 32 * kWarps, 0, down_kernel, p);
}

}  // namespace godwit::sm90
