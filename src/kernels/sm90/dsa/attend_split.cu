// mla_attend over bf16 or fp8 latents of 512 values (glm5_next spec §9.2, kernels spec §3.7). A row's list is
// cut into pieces of 64 entries, four of which make a group: pieces are joined to their group in order,
// groups in order to the result. A block takes 16 heads and either one piece, or a group whose pieces it
// joins itself by the same operations: which of the two depends on the number of rows, the result does not.
#include <algorithm>

#include "kernels/sm90/dsa/latents.cuh"
#include "kernels/sm90/dsa/list.cuh"
#include "kernels/sm90/dsa/paged.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {
namespace {

using kernels::Sequence;

constexpr int kGroup = 4;  // pieces
constexpr int kJoinThreads = 64, kJoinColumns = 4 * kJoinThreads;
constexpr int kMaxPieces = static_cast<int>((kMaxSelectedTokens + 2 * kPieceTokens) / kPieceTokens);

struct Attend : Attention {
  int32_t together = 1;  // pieces of a block: 1 or kGroup
  int32_t parts = 0;     // blocks of a row and 16 heads
  int32_t first_row = 0;
  float* partial = nullptr;   // [rows, parts, heads, kWidth]
  float2* maximum = nullptr;  // [rows, parts, heads]: largest score, sum of exponentials
};

// How what came before and what comes are weighed when they are joined.
struct Join {
  float before, next;
  __device__ Join(float before_maximum, float next_maximum) {
    const float largest = fmaxf(before_maximum, next_maximum);
    before = expf(before_maximum - largest);
    next = expf(next_maximum - largest);
  }
  __device__ float operator()(float sum, float value) const { return fmaf(before, sum, next * value); }
};

template <class Latents>
constexpr size_t shared_bytes() {
  return sizeof(Piece<Latents>) + kGroup * kPieceTokens * sizeof(void*);
}

template <class Latents>
__global__ void __launch_bounds__(kPieceThreads, 2)
    piece_kernel(StepView step, const __grid_constant__ Attend a) {
  auto& piece = *dynamic_shared<Piece<Latents>>();
  auto* const places = reinterpret_cast<const std::byte**>(&piece + 1);  // of all tokens
  let_next_start();
  const unsigned part = blockIdx.x % a.parts, rest = blockIdx.x / a.parts;
  const int group = static_cast<int>(rest % a.head_groups);
  const int64_t row = rest / a.head_groups, t = a.first_row + row;
  const Sequence& s = step.sequence[step.row_sequence[t]];
  const int first = static_cast<int>(part) * a.together * kPieceTokens;
  const auto end = static_cast<int32_t>(position_of(s, t) + 1);
  const int32_t* const pages = step.pages + s.page_offset;
  wait_for_previous();
  const List list(a.pools(t), a.count(t)[0], a.pool_shift, end);
  const int tokens = min(a.together * kPieceTokens, list.tokens - first);
  if (tokens <= 0) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4;
  const int heads = min(kPieceHeads, a.heads - group * kPieceHeads);
  float sum[Latents::kTiles][4] = {};
  float largest[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};  // of heads g and g + 8
  static_assert(kGroup * kPieceTokens == kPieceThreads);
  if (static_cast<int>(threadIdx.x) < a.together * kPieceTokens) {
    const int entry = first + static_cast<int>(threadIdx.x);
    const int32_t position = list.position(entry, list.pool(entry));
    places[threadIdx.x] = a.cache.base + int64_t{pages[position / kPageTokens]} * a.cache.page_stride +
                          a.cache.latent_offset + position % kPageTokens * Latents::kRowBytes;
  }
#pragma unroll 1
  for (int i = 0; i * kPieceTokens < tokens; ++i) {
    const int count = min(kPieceTokens, tokens - i * kPieceTokens);
    // Before the copies, behind which loads would wait.
    typename Latents::QueryRows rows(a.query(t) + int64_t{group} * kPieceHeads * kWidth, heads);
    __syncthreads();  // places are known, and the piece before is done with
    const std::byte* const* from = places + i * kPieceTokens;
#pragma unroll 2
    for (int r = warp; r < kPieceTokens; r += kPieceWarps) {
      for (int c = lane; c < Latents::kRowBytes / 16; c += 32)
        copy_async(piece.latents[r] + 16 * c, from[r] + 16 * c, r < count);
    }
    commit_copies();
    typename Latents::Query query(rows);
    wait_copies<0>();
    __syncthreads();
    Latents::score(piece, query);
    __syncthreads();
    weigh(piece, a.scale, count);
    __syncthreads();
    const Join join[2] = {{largest[0], piece.largest[g]}, {largest[1], piece.largest[g + 8]}};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      total[h] = join[h](total[h], piece.total[g + 8 * h]);
      largest[h] = fmaxf(largest[h], piece.largest[g + 8 * h]);
    }
    Latents::add(piece,
                 [&](int tile, int j, float value) { sum[tile][j] = join[j / 2](sum[tile][j], value); });
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (g + 8 * h >= heads) continue;
    const int64_t place = (row * a.parts + part) * a.heads + group * kPieceHeads + g + 8 * h;
    if (threadIdx.x % 4 == 0 && warp == 0) a.maximum[place] = {largest[h], total[h]};
    Latents::store(a.partial + place * kWidth, sum, h);
  }
}

// A block a row, head and half of the columns.
__global__ void __launch_bounds__(kJoinThreads) join_kernel(StepView step, const __grid_constant__ Attend a) {
  float4* const sums = dynamic_shared<float4>();  // [parts, kJoinThreads]
  __shared__ float2 maximum[kMaxPieces], weight[kMaxPieces];
  __shared__ float2 group_maximum[kMaxPieces], group_weight[kMaxPieces];
  let_next_start();
  constexpr unsigned kSlices = kWidth / kJoinColumns;
  const unsigned rest = blockIdx.x / kSlices;
  const int64_t row = rest / a.heads, t = a.first_row + row;
  const int per_group = kGroup / a.together;
  const auto end = static_cast<int32_t>(position_of(step.sequence[step.row_sequence[t]], t) + 1);
  wait_for_previous();
  const int tokens = List(a.pools(t), a.count(t)[0], a.pool_shift, end).tokens;
  const int groups = (tokens + kGroup * kPieceTokens - 1) / (kGroup * kPieceTokens);
  const int parts = a.together == 1 ? (tokens + kPieceTokens - 1) / kPieceTokens : groups;
  const int64_t first = row * a.parts * a.heads + rest % a.heads;  // of its parts, a.heads apart
  const int64_t column = blockIdx.x % kSlices * kJoinColumns + 4 * threadIdx.x;
#pragma unroll 4
  for (int p = 0; p < parts; ++p) {
    copy_async(&sums[p * kJoinThreads + threadIdx.x], a.partial + (first + p * a.heads) * kWidth + column,
               true);
  }
  commit_copies();
#pragma unroll 1
  for (int p = threadIdx.x; p < parts; p += kJoinThreads) maximum[p] = a.maximum[first + p * a.heads];
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < groups; i += kJoinThreads) {
    float largest = -INFINITY, total = 0;
#pragma unroll 1
    for (int p = i * per_group; p < min(parts, (i + 1) * per_group); ++p) {
      const Join join(largest, maximum[p].x);
      weight[p] = {join.before, join.next};
      total = join(total, maximum[p].y);
      largest = fmaxf(largest, maximum[p].x);
    }
    group_maximum[i] = {largest, total};
  }
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < groups; i += kJoinThreads) {
    float largest = -INFINITY;
#pragma unroll 1
    for (int before = 0; before < i; ++before) largest = fmaxf(largest, group_maximum[before].x);
    const Join join(largest, group_maximum[i].x);
    group_weight[i] = {join.before, join.next};
  }
  wait_copies<0>();
  __syncthreads();
  float total = 0;
  float4 result = {0, 0, 0, 0};
  const auto add = [](float4& sum, float2 w, const float4& value) {
    sum.x = fmaf(w.x, sum.x, w.y * value.x);
    sum.y = fmaf(w.x, sum.y, w.y * value.y);
    sum.z = fmaf(w.x, sum.z, w.y * value.z);
    sum.w = fmaf(w.x, sum.w, w.y * value.w);
  };
#pragma unroll 1
  for (int i = 0; i < groups; ++i) {
    float4 sum = {0, 0, 0, 0};
#pragma unroll 4
    for (int p = i * per_group; p < min(parts, (i + 1) * per_group); ++p)
      add(sum, weight[p], sums[p * kJoinThreads + threadIdx.x]);
    add(result, group_weight[i], sum);
    total = fmaf(group_weight[i].x, total, group_weight[i].y * group_maximum[i].y);
  }
  const float inverse = 1 / total;
  float* const out = a.out(t) + rest % a.heads * kWidth + column;
  out[0] = result.x * inverse, out[1] = result.y * inverse;
  out[2] = result.z * inverse, out[3] = result.w * inverse;
}

int32_t pieces_for(int64_t tokens) {
  return static_cast<int32_t>((tokens + kPieceTokens - 1) / kPieceTokens);
}

template <class Latents>
void launch_pieces(cudaStream_t stream, const StepView& step, const Attend& a, int64_t rows) {
  static const bool sized = [] {
    check(cudaFuncSetAttribute(piece_kernel<Latents>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes<Latents>())),
          "mla_attend");
    return true;
  }();
  static_cast<void>(sized);
  launch_dependent(stream, "mla_attend", blocks_for(rows * a.head_groups * a.parts, 1), kPieceThreads,
                   shared_bytes<Latents>(), piece_kernel<Latents>, step, a);
}

}  // namespace

bool fits_split_attend(const kernels::MlaAttend& a) {
  const bool coded = a.cache.latent_dtype == DType::f8_e4m3;
  return (coded || a.cache.latent_dtype == DType::bf16) && a.query.cols == a.heads * kWidth &&
         a.cache.latent_offset % 16 == 0 && a.cache.page_stride % 16 == 0 &&
         reinterpret_cast<uintptr_t>(a.cache.base) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(a.query.data) % 16 == 0 && a.query.stride % 4 == 0 &&
         reinterpret_cast<uintptr_t>(a.out.data) % 16 == 0 && a.out.stride % 4 == 0;
}

int64_t attend_bytes(int64_t rows, int64_t heads, int64_t width, int64_t topk, int64_t pool) {
  return rows * pieces_for(topk + pool) * heads * (width + 2) * int64_t{sizeof(float)};
}

void split_attend(cudaStream_t stream, const StepView& step, const kernels::MlaAttend& a, void* scratch,
                  int64_t rows_at_once) {
  constexpr int64_t kManyPieces = 512;  // more fill the chip by groups too
  const int32_t pieces = pieces_for((a.pools.cols + 1) * a.pool);
  Attend s;
  static_cast<Attention&>(s) = attention_of(a, kPieceHeads);
  s.partial = static_cast<float*>(scratch);
  s.maximum = reinterpret_cast<float2*>(s.partial + rows_at_once * pieces * s.heads * kWidth);
  static const bool sized = [] {
    check(cudaFuncSetAttribute(join_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(kMaxPieces * kJoinThreads * sizeof(float4))),
          "mla_attend");
    return true;
  }();
  static_cast<void>(sized);
  for (int32_t first = 0; first < step.decode_rows; first += static_cast<int32_t>(rows_at_once)) {
    const int64_t rows = std::min<int64_t>(rows_at_once, step.decode_rows - first);
    s.first_row = first;
    s.together = rows * s.head_groups * pieces < kManyPieces ? 1 : kGroup;
    s.parts = (pieces + s.together - 1) / s.together;
    if (a.cache.latent_dtype == DType::bf16) {
      launch_pieces<HalfLatents>(stream, step, s, rows);
    } else {
      launch_pieces<CodedLatents>(stream, step, s, rows);
    }
    launch_dependent(stream, "mla_attend", blocks_for(rows * s.heads * (kWidth / kJoinColumns), 1),
                     kJoinThreads, s.parts * kJoinThreads * sizeof(float4), join_kernel, step, s);
  }
}

}  // namespace godwit::sm90
