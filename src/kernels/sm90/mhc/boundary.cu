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
  for (int i = threadIdx.x; i < kMapping * kValues; i += kMixThreads) {
    const int o = i / kValues, v = i % kValues;
    const int64_t at = o * a.fn_stride + v / kColumns * a.width + slice * kColumns + v % kColumns;
    fn[o][v] = load(a.fn, a.fn_is_bf16 ? DType::bf16 : DType::f32, at);
  }
  wait_for_previous();
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t t = blockIdx.x / slices * kRows + warp;
  if (t >= a.rows) return;
  float old[kStreams];
  for (int i = 0; i < kStreams; ++i) old[i] = a.streams(t)[i * a.width + column];
  if (a.expands) {
    const float* m = a.old_mix(t);
    const float y = a.y(t)[column];
    for (int j = 0; j < kStreams; ++j) {
      float sum = m[j] * y;
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
    for (int v = 0; v < kValues; ++v) sum = fmaf(fn[lane][v], values[warp][v], sum);
  } else if (lane == kMapping) {
    for (int v = 0; v < kValues; ++v) sum = fmaf(values[warp][v], values[warp][v], sum);
  }
  a.partial[(t * slices + slice) * kPartial + lane] = sum;
}

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kAll = kThreads + 32;  // and one warp for Sinkhorn

__device__ void worker_barrier() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
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
  for (int i = 0; i < kStreams; ++i) pre[i] = sigmoid(mapped[i]) + a.hc_eps;
  const float* f = a.streams(t);
  float* x = a.x(t);
  float squares = 0;
  for (int64_t c = threadIdx.x; c < a.width; c += kThreads) {
    float sum = 0;
    for (int i = 0; i < kStreams; ++i) sum = fmaf(pre[i], f[i * a.width + c], sum);
    x[c] = sum;
    squares = fmaf(sum, sum, squares);
  }
  if (a.norm == nullptr) return;
  squares = warp_sum(squares);
  if (lane == 0) squares_of[warp] = squares;
  worker_barrier();
  float total = 0;
  for (int w = 0; w < kWarps; ++w) total += squares_of[w];
  const float scale = 1.0f / sqrtf(total / static_cast<float>(a.width) + a.norm_eps);
  for (int64_t c = threadIdx.x; c < a.width; c += kThreads) a.normed(t)[c] = x[c] * scale * a.norm[c];
}

}  // namespace

bool fits_boundary(const kernels::MhcCollapse& a) {
  return a.streams.cols == kStreams * a.x.cols && a.x.cols % kColumns == 0;
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
