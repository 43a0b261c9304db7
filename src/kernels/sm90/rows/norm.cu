// RMSNorm, LayerNorm (one block a row) and the gated norm of KDA (one warp a head).
#include "kernels/sm90/device/common.cuh"
#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// x and out may be the same rows: a thread writes only what it alone reads.
__global__ void __launch_bounds__(kThreads)
    rms_norm_kernel(Rows<const float> x, int64_t columns, const float* weight, float eps,
                    ActivationRows out) {
  begin_dependent();
  const float* in = x(blockIdx.x);
  float squares = 0;
#pragma unroll 8
  for (int64_t c = threadIdx.x; c < columns; c += kThreads) squares = fmaf(in[c], in[c], squares);
  squares = block_sum<kThreads>(squares);
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(columns) + eps);
  for (int64_t c = threadIdx.x; c < columns; c += kThreads) out.put(blockIdx.x, c, in[c] * scale * weight[c]);
}

// The same for rows of whole fours that lie aligned and fit into registers.
constexpr int kPieces = 4;  // of four values, of a thread
constexpr int64_t kWidest = 4 * kPieces * kThreads;

__global__ void __launch_bounds__(kThreads)
    wide_rms_norm_kernel(Rows<const float> x, int32_t columns, const float* weight, float eps,
                         ActivationRows out) {
  let_next_start();
  const auto column = [](int k) { return 4 * (static_cast<int>(threadIdx.x) + k * kThreads); };
  float4 w[kPieces], v[kPieces];
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    w[k] = float4{0, 0, 0, 0};
    if (column(k) < columns) w[k] = *reinterpret_cast<const float4*>(weight + column(k));
  }
  wait_for_previous();
  float squares = 0;
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    v[k] = float4{0, 0, 0, 0};
    if (column(k) < columns) v[k] = *reinterpret_cast<const float4*>(x(blockIdx.x) + column(k));
  }
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    squares = fmaf(v[k].x, v[k].x, squares), squares = fmaf(v[k].y, v[k].y, squares);
    squares = fmaf(v[k].z, v[k].z, squares), squares = fmaf(v[k].w, v[k].w, squares);
  }
  const float scale = fast_rsqrt(block_sum<kThreads>(squares) / static_cast<float>(columns) + eps);
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    if (column(k) >= columns) break;
    out.put(blockIdx.x, column(k),
            float4{v[k].x * scale * w[k].x, v[k].y * scale * w[k].y, v[k].z * scale * w[k].z,
                   v[k].w * scale * w[k].w});
  }
}

__global__ void __launch_bounds__(kThreads)
    layer_norm_kernel(Rows<const float> x, int64_t columns, const float* weight, const float* bias, float eps,
                      Rows<float> out) {
  begin_dependent();
  const float* in = x(blockIdx.x);
  float sum = 0;
  for (int64_t c = threadIdx.x; c < columns; c += kThreads) sum += in[c];
  const float mean = block_sum<kThreads>(sum) / static_cast<float>(columns);
  float squares = 0;
  for (int64_t c = threadIdx.x; c < columns; c += kThreads) {
    squares = fmaf(in[c] - mean, in[c] - mean, squares);
  }
  squares = block_sum<kThreads>(squares);
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(columns) + eps);
  float* to = out(blockIdx.x);
  for (int64_t c = threadIdx.x; c < columns; c += kThreads) {
    to[c] = fmaf((in[c] - mean) * scale, weight[c], bias[c]);
  }
}

__global__ void __launch_bounds__(kThreads)
    gated_norm_kernel(Rows<const float> o, Rows<const float> gate, const float* weight, int64_t heads,
                      int64_t dim, float eps, int64_t tasks, ActivationRows out) {
  begin_dependent();
  const int64_t task = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (task >= tasks) return;
  const int64_t t = task / heads, first = task % heads * dim;
  const float* in = o(t) + first;
  float squares = 0;
  for (int64_t c = threadIdx.x % 32; c < dim; c += 32) squares = fmaf(in[c], in[c], squares);
  const float scale = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(dim) + eps);
  for (int64_t c = threadIdx.x % 32; c < dim; c += 32) {
    out.put(t, first + c, in[c] * scale * weight[c] * sigmoid(gate(t)[first + c]));
  }
}

}  // namespace

void rms_norm(cudaStream_t stream, const kernels::RmsNorm& a) {
  if (a.x.rows == 0) return;
  const auto by_four = [](const void* p, int64_t stride) {
    return reinterpret_cast<uintptr_t>(p) % 16 == 0 && stride % 4 == 0;
  };
  if (a.x.cols <= kWidest && a.x.cols % 4 == 0 && by_four(a.x.data, a.x.stride) &&
      by_four(a.out.data, a.out.stride) && by_four(a.weight, 0)) {
    launch_dependent(stream, "rms_norm", blocks_for(a.x.rows, 1), kThreads, 0, wide_rms_norm_kernel,
                     rows_of<const float>(a.x), static_cast<int32_t>(a.x.cols), a.weight, a.eps,
                     activation_rows(a.out));
    return;
  }
  launch_dependent(stream, "rms_norm", blocks_for(a.x.rows, 1), kThreads, 0, rms_norm_kernel,
                   rows_of<const float>(a.x), a.x.cols, a.weight, a.eps, activation_rows(a.out));
}

void layer_norm(cudaStream_t stream, const kernels::LayerNorm& a) {
  if (a.x.rows == 0) return;
  launch_dependent(stream, "layer_norm", blocks_for(a.x.rows, 1), kThreads, 0, layer_norm_kernel,
                   rows_of<const float>(a.x), a.x.cols, a.weight, a.bias, a.eps, rows_of<float>(a.out));
}

void gated_norm(cudaStream_t stream, const kernels::GatedNorm& a) {
  const int64_t heads = a.o.cols / a.head_dim;
  const int64_t tasks = a.o.rows * heads;
  if (tasks == 0) return;
  launch_dependent(stream, "gated_norm", blocks_for(tasks, kWarps), kThreads, 0, gated_norm_kernel,
                   rows_of<const float>(a.o), rows_of<const float>(a.gate), a.weight, heads, a.head_dim,
                   a.eps, tasks, activation_rows(a.out));
}

}  // namespace godwit::sm90
