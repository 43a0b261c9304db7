// mla_attend over bf16 latents (glm5_next spec §9.2, kernels spec §3.7): a block takes 16 heads of one row
// and 128 entries of its list, so that every latent is read once for all heads. Where a list is cut depends
// on the list alone; the pieces are put together in their order.
#include <algorithm>

#include "kernels/sm90/dsa/paged.cuh"
#include "kernels/sm90/dsa/parts.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {
namespace {

using kernels::Sequence;

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kTokens = 128;  // of a piece; 16 a warp
constexpr int kHeads = 16;    // of a block
constexpr int kScorePitch = kTokens + 4;
constexpr int kMaxWidth = 512;
constexpr int kMaxPieces = static_cast<int>((kMaxSelectedTokens + 2 * kTokens) / kTokens);

struct Attend {
  Rows<const float> query;  // [T, heads width]
  kernels::DsaCache cache;
  Rows<const int32_t> pools, count;
  int32_t pool, heads, width;
  int32_t head_groups, pieces;
  float scale;
  int32_t first_row;
  float* partial;   // [rows, pieces, heads, width]
  float2* maximum;  // [rows, pieces, heads]: largest score, sum of exponentials
  Rows<float> out;  // [T, heads width]
};

__device__ int listed(const Attend& a, int64_t t) {
  return a.count(t)[0] * a.pool;
}
__device__ int tokens_of(const Attend& a, const Sequence& s, int64_t t) {
  return listed(a, t) + static_cast<int>((position_of(s, t) + 1) % a.pool);
}

constexpr size_t latent_pitch(int width) {
  return static_cast<size_t>(width) * 2 + 16;
}
constexpr size_t shared_bytes(int width) {
  return kTokens * latent_pitch(width) + static_cast<size_t>(width / 16) * 32 * sizeof(Parts) +
         kHeads * kScorePitch * sizeof(float) + kTokens * sizeof(void*);
}

__global__ void __launch_bounds__(kThreads) piece_kernel(StepView step, const __grid_constant__ Attend a) {
  uint8_t* const memory = dynamic_shared<uint8_t>();
  begin_dependent();
  const int pitch = static_cast<int>(latent_pitch(a.width)), steps = a.width / 16;
  uint8_t* latents = memory;
  Parts* queries = reinterpret_cast<Parts*>(memory + kTokens * pitch);
  float* scores = reinterpret_cast<float*>(queries + steps * 32);
  const uint8_t** from = reinterpret_cast<const uint8_t**>(scores + kHeads * kScorePitch);
  const int piece = blockIdx.x % a.pieces, group = blockIdx.x / a.pieces % a.head_groups;
  const int64_t row = blockIdx.x / a.pieces / a.head_groups, t = a.first_row + row;
  const Sequence& s = step.sequence[step.row_sequence[t]];
  const int first = piece * kTokens, count = min(kTokens, tokens_of(a, s, t) - first);
  if (count <= 0) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q4 = lane % 4;

  if (threadIdx.x < kTokens) {
    const int j = first + static_cast<int>(threadIdx.x), in_list = listed(a, t);
    const int64_t end = position_of(s, t) + 1;
    int64_t position = 0;
    if (j < in_list) {
      position = int64_t{a.pools(t)[j / a.pool]} * a.pool + j % a.pool;
    } else if (static_cast<int>(threadIdx.x) < count) {
      position = end / a.pool * a.pool + (j - in_list);
    }
    const Cached cached(step, a.cache, s);
    from[threadIdx.x] =
        static_cast<const uint8_t*>(cached.latents(position)) + 2 * Cached::latent_at(position, a.width);
  }
  __syncthreads();
  for (int r = warp; r < kTokens; r += kWarps) {
    for (int c = lane; c < a.width / 8; c += 32)
      copy_async(latents + r * pitch + 16 * c, from[r] + 16 * c, r < count);
  }
  commit_copies();
  const float* query = a.query(t) + int64_t{group} * kHeads * a.width;
  const int heads = min(kHeads, a.heads - group * kHeads);
  for (int k = warp; k < steps; k += kWarps) {
    queries[k * 32 + lane] =
        split([&](int h, int c) { return h < heads ? query[h * a.width + 16 * k + c] : 0.0f; });
  }
  wait_copies<0>();
  __syncthreads();

  // Scores of this warp's 16 tokens: two tiles of 8.
  float large[2][4] = {}, small[2][4] = {};
  const uint8_t* token = latents + (16 * warp + lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * 16;
  for (int k = 0; k < steps; ++k) {
    uint32_t b[4];
    load_tiles(b, token + 32 * k);
    const Parts p = queries[k * 32 + lane];
    multiply_parts(large[0], small[0], p, b[0], b[1]);
    multiply_parts(large[1], small[1], p, b[2], b[3]);
  }
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int h = g + i / 2 * 8, at = 16 * warp + 8 * n + 2 * q4 + i % 2;
      scores[h * kScorePitch + at] = a.scale * (large[n][i] + small[n][i]);
    }
  }
  __syncthreads();
  const int64_t place = (row * a.pieces + piece) * a.heads + group * kHeads;
  for (int h = 2 * warp; h < 2 * warp + 2; ++h) {
    float* p = scores + h * kScorePitch;
    float largest = -INFINITY;
    for (int j = lane; j < count; j += 32) largest = fmaxf(largest, p[j]);
    for (int o = 16; o > 0; o /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, o));
    float total = 0;
    for (int j = lane; j < kTokens; j += 32) {
      const float e = j < count ? expf(p[j] - largest) : 0.0f;
      p[j] = e;
      total += e;
    }
    total = warp_sum(total);
    if (lane == 0 && h < heads) a.maximum[place + h] = {largest, total};
  }
  __syncthreads();

  // This warp's columns, 16 at a time.
  for (int column = 16 * warp; column < a.width; column += 16 * kWarps) {
    float sum[2][4] = {}, rest[2][4] = {};
    const uint8_t* at = latents + (lane % 16) * pitch + 2 * column + lane / 16 * 16;
#pragma unroll 2
    for (int k = 0; k < kTokens / 16; ++k) {
      uint32_t b[4];
      load_tiles_transposed(b, at + 16 * k * pitch);
      const Parts p = split([&](int h, int j) { return scores[h * kScorePitch + 16 * k + j]; });
      multiply_parts(sum[0], rest[0], p, b[0], b[1]);
      multiply_parts(sum[1], rest[1], p, b[2], b[3]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int h = g + i / 2 * 8;
        if (h >= heads) continue;
        a.partial[(place + h) * a.width + column + 8 * n + 2 * q4 + i % 2] = sum[n][i] + rest[n][i];
      }
    }
  }
}

// A block a row and head.
__global__ void __launch_bounds__(kThreads) join_kernel(StepView step, const __grid_constant__ Attend a) {
  begin_dependent();
  const int64_t row = blockIdx.x / a.heads, t = a.first_row + row;
  const int head = static_cast<int>(blockIdx.x % a.heads);
  const Sequence& s = step.sequence[step.row_sequence[t]];
  const int pieces = (tokens_of(a, s, t) + kTokens - 1) / kTokens;
  const auto place = [&](int p) { return (row * a.pieces + p) * a.heads + head; };
  __shared__ float2 maximum[kMaxPieces];
  for (int p = threadIdx.x; p < pieces; p += kThreads) maximum[p] = a.maximum[place(p)];
  __syncthreads();
  float largest = -INFINITY;
  for (int p = 0; p < pieces; ++p) largest = fmaxf(largest, maximum[p].x);
  float total = 0;
  for (int p = 0; p < pieces; ++p) total = fmaf(expf(maximum[p].x - largest), maximum[p].y, total);
  for (int c = threadIdx.x; c < a.width; c += kThreads) {
    float sum = 0;
#pragma unroll 8
    for (int p = 0; p < pieces; ++p) {
      sum = fmaf(expf(maximum[p].x - largest), a.partial[place(p) * a.width + c], sum);
    }
    a.out(t)[int64_t{head} * a.width + c] = sum / total;
  }
}

int32_t pieces_for(int64_t tokens) {
  return static_cast<int32_t>((tokens + kTokens - 1) / kTokens);
}

}  // namespace

bool fits_split_attend(const kernels::MlaAttend& a) {
  const int64_t width = a.query.cols / a.heads;
  return a.cache.latent_dtype == DType::bf16 && width % 16 == 0 && width <= kMaxWidth &&
         a.cache.latent_offset % 16 == 0 && a.cache.page_stride % 16 == 0 &&
         reinterpret_cast<uintptr_t>(a.cache.base) % 16 == 0;
}

int64_t attend_bytes(int64_t rows, int64_t heads, int64_t width, int64_t topk, int64_t pool) {
  return rows * pieces_for(topk + pool) * heads * (width + 2) * int64_t{sizeof(float)};
}

void split_attend(cudaStream_t stream, const StepView& step, const kernels::MlaAttend& a, void* scratch,
                  int64_t rows_at_once) {
  Attend s{};
  s.query = rows_of<const float>(a.query);
  s.cache = a.cache;
  s.pools = rows_of<const int32_t>(a.pools);
  s.count = rows_of<const int32_t>(a.count);
  s.pool = a.pool;
  s.heads = static_cast<int32_t>(a.heads);
  s.width = static_cast<int32_t>(a.query.cols / a.heads);
  s.head_groups = (s.heads + kHeads - 1) / kHeads;
  s.pieces = pieces_for((a.pools.cols + 1) * a.pool);
  s.scale = a.scale;
  s.out = rows_of<float>(a.out);
  s.maximum = static_cast<float2*>(scratch);
  s.partial = reinterpret_cast<float*>(s.maximum + rows_at_once * s.pieces * s.heads);
  static const bool sized = [] {
    check(cudaFuncSetAttribute(piece_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes(kMaxWidth))),
          "mla_attend");
    return true;
  }();
  static_cast<void>(sized);
  for (int32_t first = 0; first < step.rows; first += static_cast<int32_t>(rows_at_once)) {
    const int64_t rows = std::min<int64_t>(rows_at_once, step.rows - first);
    s.first_row = first;
    launch_dependent(stream, "mla_attend", blocks_for(rows * s.head_groups * s.pieces, 1), kThreads,
                     shared_bytes(s.width), piece_kernel, step, s);
    launch_dependent(stream, "mla_attend", blocks_for(rows * s.heads, 1), kThreads, 0, join_kernel, step, s);
  }
}

}  // namespace godwit::sm90
