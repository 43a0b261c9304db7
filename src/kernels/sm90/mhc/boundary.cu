// mHC between two sublayers for four streams (glm5_next spec §6, kernels spec §3.5), two launches: slices of
// 32 columns expand the streams and add up their share of the mapping; then a block a row maps, runs Sinkhorn
// beside the collapse, and normalises. Partial sums are added by slice, so a row's bits depend on D only.
#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {
namespace {

constexpr int kStreams = 4, kMapping = 2 * kStreams + kStreams * kStreams;
constexpr int kColumns = 32;                  // of a slice
constexpr int kValues = kStreams * kColumns;  // of a row in a slice
constexpr int kRows = 8;                      // a warp each
constexpr int kPartial = 32;  // floats of a row and slice: the mapping, then the sum of squares
constexpr int kMixThreads = 32 * kRows;

struct Boundary {
  bool expands;
  Rows<const float> old_mix, y;
  Rows<float> streams;  // [T, 4 D]
  const void* fn;       // [24, 4 D], rows fn_stride apart
  int64_t fn_stride;
  bool fn_is_bf16;
  const float *base, *scale;
  float norm_eps, hc_eps;
  int32_t iterations;
  int64_t rows, width;
  float* partial;  // [T, D / 32, kPartial]
  Rows<float> mix, x;
  const float* norm;  // null: no norm
  Rows<float> normed;
};

__global__ void __launch_bounds__(kMixThreads) mix_kernel(const __grid_constant__ Boundary a) {
  __shared__ float fn[kMapping][kValues + 1];
  __shared__ float values[kRows][kValues];
  let_next_start();
  const int64_t slices = a.width / kColumns, slice = blockIdx.x % slices;
  const int64_t column = slice * kColumns + threadIdx.x % 32;
  float loaded[kMapping * kValues / kMixThreads];  // all on their way at once
#pragma unroll
  for (int k = 0; k < kMapping * kValues / kMixThreads; ++k) {
    const int i = static_cast<int>(threadIdx.x) + k * kMixThreads, o = i / kValues, v = i % kValues;
    const int64_t at = o * a.fn_stride + v / kColumns * a.width + slice * kColumns + v % kColumns;
    loaded[k] = load(a.fn, a.fn_is_bf16 ? DType::bf16 : DType::f32, at);
  }
#pragma unroll
  for (int k = 0; k < kMapping * kValues / kMixThreads; ++k) {
    const int i = static_cast<int>(threadIdx.x) + k * kMixThreads;
    fn[i / kValues][i % kValues] = loaded[k];
  }
  wait_for_previous();
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t t = blockIdx.x / slices * kRows + warp;
  if (t >= a.rows) return;
  float old[kStreams];
#pragma unroll
  for (int i = 0; i < kStreams; ++i) old[i] = a.streams(t)[i * a.width + column];
  if (a.expands) {
    float m[kStreams + kStreams * kStreams];
#pragma unroll
    for (int i = 0; i < kStreams + kStreams * kStreams; ++i) m[i] = a.old_mix(t)[i];
    const float y = a.y(t)[column];
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      float sum = m[j] * y;
#pragma unroll
      for (int i = 0; i < kStreams; ++i) sum = fmaf(m[kStreams + i * kStreams + j], old[i], sum);
      a.streams(t)[j * a.width + column] = sum;
      values[warp][j * kColumns + lane] = sum;
    }
  } else {
    for (int j = 0; j < kStreams; ++j) values[warp][j * kColumns + lane] = old[j];
  }
  __syncwarp();
  float sum = 0;
  if (lane < kMapping) {
#pragma unroll 16
    for (int v = 0; v < kValues; ++v) sum = fmaf(fn[lane][v], values[warp][v], sum);
  } else if (lane == kMapping) {
    for (int v = 0; v < kValues; ++v) sum = fmaf(values[warp][v], values[warp][v], sum);
  }
  a.partial[(t * slices + slice) * kPartial + lane] = sum;
}

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr int kAll = kThreads + 32;              // and one warp for Sinkhorn
constexpr int kEach = 2;                         // pieces of four columns a thread keeps
constexpr int kMaxWidth = 4 * kEach * kThreads;  // D

__device__ void worker_barrier() {
  named_barrier<1, kThreads>();
}

// Lane 4 i + j holds C_ij; the arithmetic of the plain form.
__device__ float sinkhorn(float logit, float eps, int32_t iterations) {
  constexpr unsigned kLanes = 0xffffu;
  const int lane = threadIdx.x % 32, i = lane / kStreams, j = lane % kStreams;
  float largest = __shfl_sync(kLanes, logit, i * kStreams);
  for (int k = 1; k < kStreams; ++k) largest = fmaxf(largest, __shfl_sync(kLanes, logit, i * kStreams + k));
  const float own = expf(logit - largest);
  float sum = 0;
  for (int k = 0; k < kStreams; ++k) sum += __shfl_sync(kLanes, own, i * kStreams + k);
  float c = own / sum + eps;
  const auto column_step = [&] {
    float total = eps;
    for (int r = 0; r < kStreams; ++r) total += __shfl_sync(kLanes, c, r * kStreams + j);
    c = c / total;
  };
  column_step();
  for (int32_t step = 1; step < iterations; ++step) {
    float total = eps;
    for (int k = 0; k < kStreams; ++k) total += __shfl_sync(kLanes, c, i * kStreams + k);
    c = c / total;
    column_step();
  }
  return c;
}

__global__ void __launch_bounds__(kAll) finish_kernel(const __grid_constant__ Boundary a) {
  __shared__ float parts[kWarps][kPartial];
  __shared__ float mapped[kMapping];
  __shared__ float squares_of[kWarps];
  let_next_start();
  wait_for_previous();
  const int64_t t = blockIdx.x, slices = a.width / kColumns;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp < kWarps) {
    const int64_t each = (slices + kWarps - 1) / kWarps;
    float sum = 0;
#pragma unroll 8
    for (int64_t s = warp * each; s < min(slices, (warp + 1) * each); ++s) {
      sum += a.partial[(t * slices + s) * kPartial + lane];
    }
    parts[warp][lane] = sum;
  }
  __syncthreads();
  if (threadIdx.x < kMapping) {
    float dot = 0, squares = 0;
    for (int w = 0; w < kWarps; ++w) dot += parts[w][threadIdx.x], squares += parts[w][kMapping];
    const float r = 1.0f / sqrtf(squares / static_cast<float>(kStreams * a.width) + a.norm_eps);
    const int part = threadIdx.x < kStreams ? 0 : threadIdx.x < 2 * kStreams ? 1 : 2;
    mapped[threadIdx.x] = fmaf(r * dot, a.scale[part], a.base[threadIdx.x]);
  }
  __syncthreads();
  if (warp == kWarps) {
    if (lane < kStreams * kStreams) {
      const float c = sinkhorn(mapped[2 * kStreams + lane], a.hc_eps, a.iterations);
      a.mix(t)[kStreams + lane] = c;
      if (lane < kStreams) a.mix(t)[lane] = 2 * sigmoid(mapped[kStreams + lane]);
    }
    return;
  }
  float pre[kStreams];
#pragma unroll
  for (int i = 0; i < kStreams; ++i) pre[i] = sigmoid(mapped[i]) + a.hc_eps;
  float4 x[kEach];
  float squares = 0;
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int64_t c = 4 * (int64_t{threadIdx.x} + k * kThreads);
    x[k] = float4{0, 0, 0, 0};
    if (c >= a.width) continue;
#pragma unroll
    for (int i = 0; i < kStreams; ++i) {
      const float4 f = *reinterpret_cast<const float4*>(a.streams(t) + i * a.width + c);
      x[k].x = fmaf(pre[i], f.x, x[k].x), x[k].y = fmaf(pre[i], f.y, x[k].y);
      x[k].z = fmaf(pre[i], f.z, x[k].z), x[k].w = fmaf(pre[i], f.w, x[k].w);
    }
    *reinterpret_cast<float4*>(a.x(t) + c) = x[k];
    squares = fmaf(x[k].x, x[k].x, squares), squares = fmaf(x[k].y, x[k].y, squares);
    squares = fmaf(x[k].z, x[k].z, squares), squares = fmaf(x[k].w, x[k].w, squares);
  }
  if (a.norm == nullptr) return;
  squares = warp_sum(squares);
  if (lane == 0) squares_of[warp] = squares;
  worker_barrier();
  float total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total += squares_of[w];
  const float scale = 1.0f / sqrtf(total / static_cast<float>(a.width) + a.norm_eps);
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int64_t c = 4 * (int64_t{threadIdx.x} + k * kThreads);
    if (c >= a.width) continue;
    const float4 w = *reinterpret_cast<const float4*>(a.norm + c);
    *reinterpret_cast<float4*>(a.normed(t) + c) =
        float4{x[k].x * scale * w.x, x[k].y * scale * w.y, x[k].z * scale * w.z, x[k].w * scale * w.w};
  }
}

}  // namespace

bool fits_boundary(const kernels::MhcCollapse& a) {
  const auto by_four = [](const View& v) {
    return reinterpret_cast<uintptr_t>(v.data) % 16 == 0 && v.stride % 4 == 0;
  };
  return a.streams.cols == kStreams * a.x.cols && a.x.cols % kColumns == 0 && a.x.cols <= kMaxWidth &&
         by_four(a.streams) && by_four(a.x);
}

int64_t boundary_bytes(int64_t rows, int64_t width) {
  return rows * (width / kColumns) * kPartial * int64_t{sizeof(float)};
}

void mhc_boundary(cudaStream_t stream, const kernels::MhcExpand* expand, const kernels::MhcCollapse& a,
                  const float* norm, const View& normed, float* partial) {
  if (a.x.rows == 0) return;
  Boundary b{};
  b.expands = expand != nullptr;
  if (expand) b.old_mix = rows_of<const float>(expand->mix), b.y = rows_of<const float>(expand->y);
  b.streams = rows_of<float>(a.streams);
  b.fn = a.weights.fn.data;
  b.fn_stride = a.weights.fn.stride;
  b.fn_is_bf16 = a.weights.fn.dtype == DType::bf16;
  b.base = a.weights.base;
  b.scale = a.weights.scale;
  b.norm_eps = a.norm_eps;
  b.hc_eps = a.hc_eps;
  b.iterations = a.iterations;
  b.rows = a.x.rows;
  b.width = a.x.cols;
  b.partial = partial;
  b.mix = rows_of<float>(a.mix);
  b.x = rows_of<float>(a.x);
  b.norm = norm;
  b.normed = rows_of<float>(normed);
  const int64_t blocks = b.width / kColumns * ((b.rows + kRows - 1) / kRows);
  launch_dependent(stream, "mhc_boundary", blocks_for(blocks, 1), kMixThreads, 0, mix_kernel, b);
  launch_dependent(stream, "mhc_boundary", blocks_for(b.rows, 1), kAll, 0, finish_kernel, b);
}

}  // namespace godwit::sm90
