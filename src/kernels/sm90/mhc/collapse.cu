// mHC mapping, Sinkhorn and collapse (glm5_next spec §6), plain form: one block a row.
#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/launches.h"
#include "kernels/sm90/linear/dot.cuh"

namespace godwit::sm90 {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kMaxMapping = 2 * kMaxStreams + kMaxStreams * kMaxStreams;

struct Collapse {
  Rows<const float> streams;  // [T, n D]
  const void* fn;             // [2n + n^2, n D], rows fn_stride apart
  int64_t fn_stride;
  const float *base, *scale;
  float norm_eps, hc_eps;
  int32_t iterations;
  int n;
  int64_t width;    // D
  Rows<float> mix;  // [T, n + n^2]
  Rows<float> x;    // [T, D]
};

// One warp: c [n, n] from its logits. Every element sums what it is divided by, so that a step is one
// division deep.
__device__ void sinkhorn(float* c, int n, float eps, int32_t iterations) {
  constexpr int kEach = kMaxStreams * kMaxStreams / 32;
  const int lane = threadIdx.x % 32;
  const auto update = [&](auto element) {
    float value[kEach];
    for (int e = 0; e < kEach; ++e) {
      const int at = lane + 32 * e;
      value[e] = at < n * n ? element(at / n, at % n) : 0.0f;
    }
    __syncwarp();
    for (int e = 0; e < kEach; ++e) {
      if (lane + 32 * e < n * n) c[lane + 32 * e] = value[e];
    }
    __syncwarp();
  };
  const auto column_step = [&](int i, int j) {
    float sum = eps;
    for (int r = 0; r < n; ++r) sum += c[r * n + j];
    return c[i * n + j] / sum;
  };
  const auto row_step = [&](int i, int j) {
    float sum = eps;
    for (int k = 0; k < n; ++k) sum += c[i * n + k];
    return c[i * n + j] / sum;
  };
  update([&](int i, int j) {
    float largest = c[i * n];
    for (int k = 1; k < n; ++k) largest = fmaxf(largest, c[i * n + k]);
    float sum = 0;
    for (int k = 0; k < n; ++k) sum += expf(c[i * n + k] - largest);
    return expf(c[i * n + j] - largest) / sum + eps;
  });
  update(column_step);
  for (int32_t step = 1; step < iterations; ++step) {
    update(row_step);
    update(column_step);
  }
}

template <class W, bool kVector>
__global__ void __launch_bounds__(kThreads) collapse_kernel(Collapse a) {
  begin_dependent();
  __shared__ float m[kMaxMapping];
  const int64_t t = blockIdx.x;
  const int n = a.n, mapping = 2 * n + n * n;
  const float* f = a.streams(t);
  const int64_t all = n * a.width;
  float squares = 0;
  for (int64_t c = threadIdx.x; c < all; c += kThreads) squares = fmaf(f[c], f[c], squares);
  const float r = 1.0f / sqrtf(block_sum<kThreads>(squares) / static_cast<float>(all) + a.norm_eps);
  const Activations<W> row{f};
  for (int o = threadIdx.x / 32; o < mapping; o += kWarps) {
    float dot;
    warp_dot<W, 1, kVector>(static_cast<const W*>(a.fn) + o * a.fn_stride, nullptr, &row, all, &dot);
    const int part = o < n ? 0 : o < 2 * n ? 1 : 2;
    if (threadIdx.x % 32 == 0) m[o] = fmaf(r * dot, a.scale[part], a.base[o]);
  }
  __syncthreads();
  float pre[kMaxStreams];
#pragma unroll
  for (int i = 0; i < kMaxStreams; ++i) pre[i] = i < n ? sigmoid(m[i]) + a.hc_eps : 0.0f;
  for (int64_t c = threadIdx.x; c < a.width; c += kThreads) {
    float x = 0;
#pragma unroll
    for (int i = 0; i < kMaxStreams; ++i) {
      if (i < n) x = fmaf(pre[i], f[i * a.width + c], x);
    }
    a.x(t)[c] = x;
  }
  if (threadIdx.x >= 32) return;
  sinkhorn(m + 2 * n, n, a.hc_eps, a.iterations);
  float* mix = a.mix(t);
  if (static_cast<int>(threadIdx.x) < n) mix[threadIdx.x] = 2 * sigmoid(m[n + threadIdx.x]);
  for (int i = threadIdx.x; i < n * n; i += 32) mix[n + i] = m[2 * n + i];
}

template <class W>
void launch(cudaStream_t stream, const Collapse& a, int64_t rows) {
  const int64_t all = a.n * a.width;
  if (loads_by_four<float>(a.streams.data, a.streams.stride, all) &&
      loads_by_four<W>(a.fn, a.fn_stride, all)) {
    launch_dependent(stream, "mhc_collapse", blocks_for(rows, 1), kThreads, 0, collapse_kernel<W, true>, a);
  } else {
    launch_dependent(stream, "mhc_collapse", blocks_for(rows, 1), kThreads, 0, collapse_kernel<W, false>, a);
  }
}

}  // namespace

void mhc_collapse(cudaStream_t stream, const kernels::MhcCollapse& a) {
  if (a.x.rows == 0) return;
  const View& fn = a.weights.fn;
  const Collapse c{rows_of<const float>(a.streams),
                   fn.data,
                   fn.stride,
                   a.weights.base,
                   a.weights.scale,
                   a.norm_eps,
                   a.hc_eps,
                   a.iterations,
                   static_cast<int>(a.streams.cols / a.x.cols),
                   a.x.cols,
                   rows_of<float>(a.mix),
                   rows_of<float>(a.x)};
  if (fn.dtype == DType::f32) {
    launch<float>(stream, c, a.x.rows);
  } else {
    launch<bf16>(stream, c, a.x.rows);
  }
}

}  // namespace godwit::sm90
