// mHC between two sublayers for four streams (glm5_next spec §6, kernels spec §3.5), two launches: slices of
// 32 columns expand the streams and add up their share of the mapping on tensor cores; then a block a row
// maps, runs Sinkhorn beside the collapse, normalises and quantises. Partial sums are added in the order of
// slices, so a row's bits depend on D only.
#include "kernels/quantize.h"
#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/mhc/boundary.cuh"

namespace godwit::sm90 {
namespace {

constexpr int kStreams = Boundary::kStreams, kMapping = Boundary::kMapping, kMix = Boundary::kMix;
constexpr int kPartial = 32;  // floats of a row and slice: the mapping, then the sum of squares

struct Sliced : Boundary {
  int32_t slices;   // of columns
  float* partial;   // [T, slices, kPartial]
  Quantized codes;  // of normed; null: not wanted
};

constexpr int kRows = 8;  // of a block: one column tile of mma
constexpr int kMixWarps = 4, kMixThreads = 32 * kMixWarps;
constexpr int kWarpColumns = 8, kColumns = kMixWarps * kWarpColumns;  // of a slice

// Lane (g, t) has row g and columns 2 t, 2 t + 1 of the warp's eight. A step of the product takes a column of
// each lane; its slots 2 t, 2 t + 1, 2 t + 8, 2 t + 9 are that column's four streams.
__global__ void __launch_bounds__(kMixThreads) mix_kernel(const __grid_constant__ Sliced a) {
  __shared__ float sums[kMixWarps][kRows][kPartial + 1];
  let_next_start();
  const auto slices = static_cast<unsigned>(a.slices), slice = blockIdx.x % slices;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int column = static_cast<int>(slice) * kColumns + warp * kWarpColumns + 2 * t;
  uint32_t fn[3][kStreams];  // outputs g + 8 i; both columns
  const bf16* from = a.fn + g * a.fn_stride + column;
#pragma unroll
  for (int i = 0; i < 3; ++i, from += 8 * a.fn_stride) {
#pragma unroll
    for (int j = 0; j < kStreams; ++j) fn[i][j] = *reinterpret_cast<const uint32_t*>(from + j * a.width);
  }
  wait_for_previous();
  const int64_t first = int64_t{blockIdx.x / slices} * kRows, row = min(first + g, a.rows - 1);
  float2 value[kStreams];
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
    value[j] = *reinterpret_cast<const float2*>(a.streams(row) + j * a.width + column);
  }
  if (a.expands) {
    float4 m[kMix / 4];
#pragma unroll
    for (int i = 0; i < kMix / 4; ++i) m[i] = reinterpret_cast<const float4*>(a.old_mix(row))[i];
    const float2 y = *reinterpret_cast<const float2*>(a.y(row) + column);
    const float post[kStreams] = {m[0].x, m[0].y, m[0].z, m[0].w};
    float2 next[kStreams];
#pragma unroll
    for (int j = 0; j < kStreams; ++j) next[j] = float2{post[j] * y.x, post[j] * y.y};
#pragma unroll
    for (int i = 0; i < kStreams; ++i) {
      const float c[kStreams] = {m[1 + i].x, m[1 + i].y, m[1 + i].z, m[1 + i].w};
#pragma unroll
      for (int j = 0; j < kStreams; ++j) {
        next[j].x = fmaf(c[j], value[i].x, next[j].x);
        next[j].y = fmaf(c[j], value[i].y, next[j].y);
      }
    }
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      value[j] = next[j];
      if (first + g < a.rows) *reinterpret_cast<float2*>(a.streams(row) + j * a.width + column) = next[j];
    }
  }
  float squares = 0;
  float product[2][3][4] = {};
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    const unsigned pick = step == 0 ? 0x5410 : 0x7632;  // the low or the high halves of two words
    const uint32_t low[4] = {__byte_perm(fn[0][0], fn[0][1], pick), __byte_perm(fn[1][0], fn[1][1], pick),
                             __byte_perm(fn[0][2], fn[0][3], pick), __byte_perm(fn[1][2], fn[1][3], pick)};
    const uint32_t high[4] = {__byte_perm(fn[2][0], fn[2][1], pick), 0, __byte_perm(fn[2][2], fn[2][3], pick),
                              0};
    float v[kStreams], rest[kStreams];
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      v[j] = step == 0 ? value[j].x : value[j].y;
      rest[j] = rest_of(v[j]);
      squares = fmaf(v[j], v[j], squares);
    }
    // Three bf16 parts hold all 24 bits of a value.
    const uint32_t parts[3][2] = {
        {upper_halves(v[0], v[1]), upper_halves(v[2], v[3])},
        {upper_halves(rest[0], rest[1]), upper_halves(rest[2], rest[3])},
        {upper_halves(rest_of(rest[0]), rest_of(rest[1])), upper_halves(rest_of(rest[2]), rest_of(rest[3]))}};
#pragma unroll
    for (int p = 0; p < 3; ++p) {
      mma_bf16(product[0][p], low, parts[p][0], parts[p][1]);
      mma_bf16(product[1][p], high, parts[p][0], parts[p][1]);
    }
  }
  squares += __shfl_xor_sync(0xffffffffu, squares, 1);
  squares += __shfl_xor_sync(0xffffffffu, squares, 2);
  // Outputs g, g + 8 and g + 16 of rows 2 t and 2 t + 1.
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float* to = sums[warp][2 * t + i];
    const auto sum = [&](int tile, int at) {
      return product[tile][0][at] + (product[tile][1][at] + product[tile][2][at]);
    };
    to[g] = sum(0, i);
    to[g + 8] = sum(0, 2 + i);
    to[g + 16] = sum(1, i);
  }
  if (t == 0) sums[warp][g][kMapping] = squares;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kRows * kPartial / kMixThreads; ++i) {
    const int r = i * kMixWarps + warp;
    if (lane > kMapping || first + r >= a.rows) continue;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kMixWarps; ++w) sum += sums[w][r][lane];
    a.partial[((first + r) * slices + slice) * kPartial + lane] = sum;
  }
}

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr int kAll = kThreads + 32;  // and one warp for Sinkhorn
constexpr int kEach = 2;             // pieces of four columns a thread keeps
constexpr int kMaxWidth = Boundary::kMaxWidth;
static_assert(kMaxWidth <= 4 * kEach * kThreads);

// Four of the sums of a slice; a thread has two slices, kAll / kQuads apart.
constexpr int kQuads = kPartial / 4;
static_assert(kMaxWidth / kColumns <= 2 * kAll / kQuads);
__device__ inline float4 load_slice(const Sliced& a, int64_t t, int slices, int nth) {
  const int s = static_cast<int>(threadIdx.x) / kQuads + nth * (kAll / kQuads);
  if (s >= slices) return float4{0, 0, 0, 0};
  const float* from = a.partial + (t * slices + s) * kPartial;
  return reinterpret_cast<const float4*>(from)[threadIdx.x % kQuads];
}

// The sums of all threads, added up; lane l of every warp gets sum l.
__device__ inline float add_slices(float4 sum) {
  __shared__ __align__(16) float parts[kAll / 32][kPartial];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int offset = kQuads; offset < 32; offset *= 2) {
    sum.x += __shfl_xor_sync(0xffffffffu, sum.x, offset);
    sum.y += __shfl_xor_sync(0xffffffffu, sum.y, offset);
    sum.z += __shfl_xor_sync(0xffffffffu, sum.z, offset);
    sum.w += __shfl_xor_sync(0xffffffffu, sum.w, offset);
  }
  if (lane < kQuads) reinterpret_cast<float4*>(parts[warp])[lane] = sum;
  __syncthreads();
  float all = 0;
#pragma unroll
  for (int w = 0; w < kAll / 32; ++w) all += parts[w][lane];
  return all;
}

// encode_group() of linear/quantize.cuh in a loop: this launch is short, and its code comes from memory each
// time.
__device__ inline void quantize_group(const float4& v, const Quantized& to, int64_t row, int column) {
  float largest = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
  const bool has_nan = __any_sync(0xffffffffu, isnan(v.x) || isnan(v.y) || isnan(v.z) || isnan(v.w));
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  }
  const float scale = has_nan ? nanf("") : __fdiv_rn(largest, kernels::kE4m3Max);
  const float values[4] = {v.x, v.y, v.z, v.w};
  uint32_t codes = 0;
#pragma unroll 1
  for (int j = 3; j >= 0; --j) {
    const float value = j == 0 ? values[0] : j == 1 ? values[1] : j == 2 ? values[2] : values[3];
    const uint32_t code =
        scale == 0 ? 0u : __nv_cvt_float_to_fp8(__fdiv_rn(value, scale), __NV_SATFINITE, __NV_E4M3);
    codes = codes << 8 | code;
  }
  *reinterpret_cast<uint32_t*>(to.codes + row * to.padded + column) = codes;
  if (threadIdx.x % 32 == 0) to.scales[row * (to.padded / kFp8Block) + column / kFp8Block] = scale;
}

__global__ void __launch_bounds__(kAll, 2) finish_kernel(const __grid_constant__ Sliced a) {
  __shared__ float squares_of[kWarps];
  let_next_start();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int part = lane < kStreams ? 0 : lane < 2 * kStreams ? 1 : 2;
  const float scale = a.scale[part], base = lane < kMapping ? a.base[lane] : 0;
  const int64_t t = a.rows - 1 - blockIdx.x;  // of many rows, the cache has the last
  const int width = a.width, column = 4 * static_cast<int>(threadIdx.x), slices = a.slices;
  const auto has = [&](int k) { return warp < kWarps && column + k * 4 * kThreads < width; };
  float4 norm[kEach];
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    if (has(k) && a.norm != nullptr)
      norm[k] = *reinterpret_cast<const float4*>(a.norm + column + k * 4 * kThreads);
  }
  wait_for_previous();
  const float4 slice = load_slice(a, t, slices, 0), other = load_slice(a, t, slices, 1);
  float4 value[kEach][kStreams];
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    if (!has(k)) continue;
#pragma unroll
    for (int i = 0; i < kStreams; ++i) {
      value[k][i] = *reinterpret_cast<const float4*>(a.streams(t) + i * width + column + k * 4 * kThreads);
    }
  }
  const float sum =
      add_slices(float4{slice.x + other.x, slice.y + other.y, slice.z + other.z, slice.w + other.w});
  const float squares = __shfl_sync(0xffffffffu, sum, kMapping);
  const float r = fast_rsqrt(squares * fast_reciprocal(static_cast<float>(kStreams * width)) + a.norm_eps);
  const float logit = fmaf(r * sum, scale, base);
  const float activated = fast_sigmoid(logit);
  float pre[kStreams];
#pragma unroll
  for (int i = 0; i < kStreams; ++i) pre[i] = __shfl_sync(0xffffffffu, activated, i) + a.hc_eps;
  if (warp == kWarps) {
    __shared__ __align__(16) float logits[32];
    logits[lane] = logit;
    __syncwarp();
    float c[kStreams][kStreams];
#pragma unroll
    for (int i = 0; i < kStreams; ++i) {
      const float4 v = reinterpret_cast<const float4*>(logits)[2 + i];
      c[i][0] = v.x, c[i][1] = v.y, c[i][2] = v.z, c[i][3] = v.w;
    }
    sinkhorn(c, a.hc_eps, a.iterations);
    float* mix = a.mix(t);
    if (lane >= kStreams && lane < 2 * kStreams) mix[lane - kStreams] = 2 * activated;
    if (lane != 0) return;
#pragma unroll
    for (int i = 0; i < kStreams; ++i) {
      reinterpret_cast<float4*>(mix)[1 + i] = float4{c[i][0], c[i][1], c[i][2], c[i][3]};
    }
    return;
  }
  float4 x[kEach];
  float total = 0;
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    x[k] = float4{0, 0, 0, 0};
    const int c = column + k * 4 * kThreads;
    if (c >= width) continue;
#pragma unroll
    for (int i = 0; i < kStreams; ++i) {
      const float4& f = value[k][i];
      x[k].x = fmaf(pre[i], f.x, x[k].x), x[k].y = fmaf(pre[i], f.y, x[k].y);
      x[k].z = fmaf(pre[i], f.z, x[k].z), x[k].w = fmaf(pre[i], f.w, x[k].w);
    }
    total = fmaf(x[k].x, x[k].x, total), total = fmaf(x[k].y, x[k].y, total);
    total = fmaf(x[k].z, x[k].z, total), total = fmaf(x[k].w, x[k].w, total);
  }
  if (a.norm == nullptr) {
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int c = column + k * 4 * kThreads;
      if (c < width) *reinterpret_cast<float4*>(a.x(t) + c) = x[k];
    }
    return;
  }
  total = warp_sum(total);
  if (lane == 0) squares_of[warp] = total;
  named_barrier<1, kThreads>();
  total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total += squares_of[w];
  const float by = fast_rsqrt(total * fast_reciprocal(static_cast<float>(width)) + a.norm_eps);
#pragma unroll 1
  for (int k = 0; k < kEach; ++k) {
    const int c = column + k * 4 * kThreads;
    if (c >= width) break;
    const float4 w = k == 0 ? norm[0] : norm[1], v = k == 0 ? x[0] : x[1];
    const float4 n =
        a.normed.put(t, c, float4{v.x * by * w.x, v.y * by * w.y, v.z * by * w.z, v.w * by * w.w});
    if (a.codes.codes != nullptr) quantize_group(n, a.codes, t, c);
  }
}

}  // namespace

bool fits_boundary(const kernels::MhcExpand* expand, const kernels::MhcCollapse& a, const View& normed) {
  const auto by_four = [](const View& v) {
    return reinterpret_cast<uintptr_t>(v.data) % 16 == 0 && v.stride % 4 == 0;
  };
  const View& fn = a.weights.fn;
  if (expand != nullptr && !(by_four(expand->y) && by_four(expand->mix))) return false;
  return by_four(normed) && a.streams.cols == kStreams * a.x.cols && a.x.cols % kFp8Block == 0 &&
         a.x.cols <= kMaxWidth && by_four(a.streams) && by_four(a.x) && by_four(a.mix) &&
         fn.dtype == DType::bf16 && reinterpret_cast<uintptr_t>(fn.data) % 8 == 0 && fn.stride % 4 == 0;
}

int64_t boundary_bytes(int64_t rows, int64_t width) {
  return rows * (width / kColumns) * kPartial * int64_t{sizeof(float)};
}

Boundary boundary_of(const kernels::MhcExpand* expand, const kernels::MhcCollapse& a, const float* norm,
                     const View& normed) {
  Boundary b{};
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
  b.width = static_cast<int32_t>(a.x.cols);
  b.rows = a.x.rows;
  b.mix = rows_of<float>(a.mix);
  b.x = rows_of<float>(a.x);
  b.norm = norm;
  b.normed = activation_rows(normed);
  return b;
}

void mhc_boundary(cudaStream_t stream, const kernels::MhcExpand* expand, const kernels::MhcCollapse& a,
                  const float* norm, const View& normed, const Quantized* codes, float* partial) {
  if (a.x.rows == 0) return;
  Sliced b{boundary_of(expand, a, norm, normed), 0, partial, {}};
  b.slices = b.width / kColumns;
  if (codes) b.codes = *codes;
  const int64_t blocks = b.slices * ((b.rows + kRows - 1) / kRows);
  launch_dependent(stream, "mhc_boundary", blocks_for(blocks, 1), kMixThreads, 0, mix_kernel, b);
  launch_dependent(stream, "mhc_boundary", blocks_for(b.rows, 1), kAll, 0, finish_kernel, b);
}

}  // namespace godwit::sm90
