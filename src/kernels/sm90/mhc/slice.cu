// mHC between two sublayers for prompt rows of four streams (glm5_next spec §6, kernels spec §4.3): a block
// takes 16 rows. Its warps share out the columns: they expand the streams and multiply them with `fn` on
// tensor cores, each value as three bf16 parts that hold all its bits. Then the block maps, runs Sinkhorn for
// all rows at once, and collapses and normalises. Sums are added by warp, so a row's bits depend on D only.
#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {
namespace {

constexpr int kStreams = 4, kMapping = 2 * kStreams + kStreams * kStreams,
              kMixed = kStreams + kStreams * kStreams;
constexpr int kRows = 16, kWarps = 8, kThreads = 32 * kWarps;
constexpr int kGroup = 16;  // columns of every stream that a warp takes at a time
constexpr int kRowThreads = 128,
              kEach = 8;  // of a row in the collapse; pieces of four columns a thread keeps
constexpr int kMaxWidth = 4 * kRowThreads * kEach;

struct Slice {
  bool expands;
  Rows<const float> old_mix, y;
  Rows<float> streams;  // [T, 4 D]
  const bf16* fn;       // [24, 4 D], rows fn_stride apart
  int64_t fn_stride;
  const float *base, *scale;
  float norm_eps, hc_eps;
  int32_t iterations;
  int64_t rows;
  int32_t width;
  Rows<float> mix, x;
  const float* norm;  // null: x is what is asked for, else its normed rows are
  ActivationRows normed;
};

struct Shared {
  float old_mix[kRows][kMixed];
  float dots[kWarps][kRows][kMapping];
  float squares[kWarps][kRows];
  float mapped[kRows][kMapping];
  float pre[kRows][kStreams];
  float row_squares[2][kWarps];
};

// Of one lane: rows lane / 4 and + 8; accumulators as mma.m16n8k16 has them, eight outputs of the mapping a
// tile.
struct Sums {
  float dot[3][4];
  float squares[2];
};

// Lane t of a quad takes columns 4 t to 4 t + 3 of a group. The order of k is free as long as both sides
// agree.
__device__ void multiply_group(const Slice& a, const Shared& s, int64_t first, int32_t group, Sums& sums) {
  const int lane = threadIdx.x % 32, g = lane / 4;
  const int32_t column = group * kGroup + lane % 4 * 4;
  float v[2][kStreams][4];
  float* at[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    at[h] = a.streams(min(first + g + 8 * h, a.rows - 1)) + column;
#pragma unroll
    for (int i = 0; i < kStreams; ++i) {
      const float4 f = *reinterpret_cast<const float4*>(at[h] + i * a.width);
      v[h][i][0] = f.x, v[h][i][1] = f.y, v[h][i][2] = f.z, v[h][i][3] = f.w;
    }
  }
  uint2 weights[kStreams][3];
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
#pragma unroll
    for (int n = 0; n < 3; ++n)
      weights[j][n] =
          __ldg(reinterpret_cast<const uint2*>(a.fn + (8 * n + g) * a.fn_stride + j * a.width + column));
  }
  if (a.expands) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = g + 8 * h;
      const float4 f = *reinterpret_cast<const float4*>(a.y(min(first + row, a.rows - 1)) + column);
      const float y[4] = {f.x, f.y, f.z, f.w}, *m = s.old_mix[row];
      float out[kStreams][4];
#pragma unroll
      for (int j = 0; j < kStreams; ++j) {
#pragma unroll
        for (int c = 0; c < 4; ++c) out[j][c] = m[j] * y[c];
#pragma unroll
        for (int i = 0; i < kStreams; ++i) {
          const float by = m[kStreams + i * kStreams + j];
#pragma unroll
          for (int c = 0; c < 4; ++c) out[j][c] = fmaf(by, v[h][i][c], out[j][c]);
        }
      }
#pragma unroll
      for (int j = 0; j < kStreams; ++j) {
#pragma unroll
        for (int c = 0; c < 4; ++c) v[h][j][c] = out[j][c];
        if (first + row < a.rows)
          *reinterpret_cast<float4*>(at[h] + j * a.width) = {out[j][0], out[j][1], out[j][2], out[j][3]};
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int c = 0; c < 4; ++c) sums.squares[h] = fmaf(v[h][j][c], v[h][j][c], sums.squares[h]);
    }
#pragma unroll
    for (int part = 0; part < 3; ++part) {
      const uint32_t left[4] = {upper_halves(v[0][j][0], v[0][j][1]), upper_halves(v[1][j][0], v[1][j][1]),
                                upper_halves(v[0][j][2], v[0][j][3]), upper_halves(v[1][j][2], v[1][j][3])};
#pragma unroll
      for (int n = 0; n < 3; ++n) mma_bf16(sums.dot[n], left, weights[j][n].x, weights[j][n].y);
      if (part == 2) break;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int c = 0; c < 4; ++c) v[h][j][c] = rest_of(v[h][j][c]);
      }
    }
  }
}

// Lane 4 i + j of each half of a warp holds C_ij of a matrix of its own; the arithmetic of the plain form.
__device__ float sinkhorn(float logit, float eps, int32_t iterations) {
  constexpr int kSide = 4;
  const int half = threadIdx.x % 32 / 16 * 16, lane = threadIdx.x % 16, i = lane / kSide, j = lane % kSide;
  const auto at = [&](float v, int row, int column) {
    return __shfl_sync(0xffffffffu, v, half + row * kSide + column);
  };
  float largest = at(logit, i, 0);
  for (int k = 1; k < kSide; ++k) largest = fmaxf(largest, at(logit, i, k));
  const float own = expf(logit - largest);
  float sum = 0;
  for (int k = 0; k < kSide; ++k) sum += at(own, i, k);
  float c = own / sum + eps;
  const auto column_step = [&] {
    float total = eps;
    for (int r = 0; r < kSide; ++r) total += at(c, r, j);
    c = c / total;
  };
  column_step();
#pragma unroll 1
  for (int32_t step = 1; step < iterations; ++step) {
    float total = eps;
    for (int k = 0; k < kSide; ++k) total += at(c, i, k);
    c = c / total;
    column_step();
  }
  return c;
}

__global__ void __launch_bounds__(kThreads, 2) slice_kernel(const __grid_constant__ Slice a) {
  __shared__ Shared s;
  begin_dependent();
  const int64_t first = int64_t{blockIdx.x} * kRows;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4;
  if (a.expands) {
    for (int i = threadIdx.x; i < kRows * kMixed; i += kThreads)
      s.old_mix[i / kMixed][i % kMixed] = a.old_mix(min(first + i / kMixed, a.rows - 1))[i % kMixed];
    __syncthreads();
  }
  Sums sums{};
#pragma unroll 1
  for (int32_t group = warp; group < a.width / kGroup; group += kWarps)
    multiply_group(a, s, first, group, sums);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float squares = sums.squares[h];
    squares += __shfl_xor_sync(0xffffffffu, squares, 1);
    squares += __shfl_xor_sync(0xffffffffu, squares, 2);
    if (lane % 4 == 0) s.squares[warp][g + 8 * h] = squares;
#pragma unroll
    for (int n = 0; n < 3; ++n) {
#pragma unroll
      for (int c = 0; c < 2; ++c) s.dots[warp][g + 8 * h][8 * n + lane % 4 * 2 + c] = sums.dot[n][2 * h + c];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kRows * kMapping; i += kThreads) {
    const int row = i / kMapping, m = i % kMapping;
    float dot = 0, squares = 0;
    for (int w = 0; w < kWarps; ++w) dot += s.dots[w][row][m], squares += s.squares[w][row];
    const float r = 1.0f / sqrtf(squares / static_cast<float>(kStreams * a.width) + a.norm_eps);
    const int part = m < kStreams ? 0 : m < 2 * kStreams ? 1 : 2;
    const float mapped = fmaf(r * dot, a.scale[part], a.base[m]);
    s.mapped[row][m] = mapped;
    if (m < kStreams) s.pre[row][m] = sigmoid(mapped) + a.hc_eps;
  }
  __syncthreads();
  {
    const int row = 2 * warp + lane / 16, c = lane % 16;  // half a warp a row
    const float mixed = sinkhorn(s.mapped[row][2 * kStreams + c], a.hc_eps, a.iterations);
    if (first + row < a.rows) {
      a.mix(first + row)[kStreams + c] = mixed;
      if (c < kStreams) a.mix(first + row)[c] = 2 * sigmoid(s.mapped[row][kStreams + c]);
    }
  }
  // Two rows at a time, four warps each.
  const int half = threadIdx.x / kRowThreads, thread = threadIdx.x % kRowThreads;
#pragma unroll 1
  for (int pair = 0; pair < kRows / 2; ++pair) {
    const int row = 2 * pair + half;
    const int64_t t = min(first + row, a.rows - 1);
    const float* from = a.streams(t);
    float4 x[kEach];
    float squares = 0;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int32_t c = 4 * (thread + k * kRowThreads);
      x[k] = float4{0, 0, 0, 0};
      if (c >= a.width) continue;
#pragma unroll
      for (int i = 0; i < kStreams; ++i) {
        const float4 f = *reinterpret_cast<const float4*>(from + i * a.width + c);
        const float pre = s.pre[row][i];
        x[k].x = fmaf(pre, f.x, x[k].x), x[k].y = fmaf(pre, f.y, x[k].y);
        x[k].z = fmaf(pre, f.z, x[k].z), x[k].w = fmaf(pre, f.w, x[k].w);
      }
      squares = fmaf(x[k].x, x[k].x, squares), squares = fmaf(x[k].y, x[k].y, squares);
      squares = fmaf(x[k].z, x[k].z, squares), squares = fmaf(x[k].w, x[k].w, squares);
    }
    float scale = 1;
    if (a.norm != nullptr) {
      squares = warp_sum(squares);
      if (lane == 0) s.row_squares[pair % 2][warp] = squares;
      __syncthreads();
      float total = 0;
#pragma unroll
      for (int w = 0; w < kWarps / 2; ++w) total += s.row_squares[pair % 2][half * (kWarps / 2) + w];
      scale = 1.0f / sqrtf(total / static_cast<float>(a.width) + a.norm_eps);
    }
    if (first + row >= a.rows) continue;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int32_t c = 4 * (thread + k * kRowThreads);
      if (c >= a.width) continue;
      if (a.norm == nullptr) {
        *reinterpret_cast<float4*>(a.x(t) + c) = x[k];
        continue;
      }
      const float4 w = __ldg(reinterpret_cast<const float4*>(a.norm + c));
      a.normed.put(
          t, c,
          float4{x[k].x * scale * w.x, x[k].y * scale * w.y, x[k].z * scale * w.z, x[k].w * scale * w.w});
    }
  }
}

bool by_four(const View& v) {
  return reinterpret_cast<uintptr_t>(v.data) % 16 == 0 && v.stride % 4 == 0;
}

}  // namespace

bool fits_boundary_slice(const kernels::MhcCollapse& a) {
  const View& fn = a.weights.fn;
  return a.streams.cols == kStreams * a.x.cols && a.x.cols % kGroup == 0 && a.x.cols <= kMaxWidth &&
         by_four(a.streams) && by_four(a.x) && fn.dtype == DType::bf16 &&
         reinterpret_cast<uintptr_t>(fn.data) % 16 == 0 && fn.stride % 4 == 0;
}

void mhc_boundary_slice(cudaStream_t stream, const kernels::MhcExpand* expand, const kernels::MhcCollapse& a,
                        const float* norm, const View& normed) {
  if (a.x.rows == 0) return;
  Slice b{};
  b.expands = expand != nullptr;
  if (expand) b.old_mix = rows_of<const float>(expand->mix), b.y = rows_of<const float>(expand->y);
  b.streams = rows_of<float>(a.streams);
  b.fn = static_cast<const bf16*>(a.weights.fn.data);
  b.fn_stride = a.weights.fn.stride;
  b.base = a.weights.base;
  b.scale = a.weights.scale;
  b.norm_eps = a.norm_eps;
  b.hc_eps = a.hc_eps;
  b.iterations = a.iterations;
  b.rows = a.x.rows;
  b.width = static_cast<int32_t>(a.x.cols);
  b.mix = rows_of<float>(a.mix);
  b.x = rows_of<float>(a.x);
  b.norm = norm;
  b.normed = activation_rows(normed);
  launch_dependent(stream, "mhc_boundary", blocks_for(b.rows, kRows), kThreads, 0, slice_kernel, b);
}

}  // namespace godwit::sm90
