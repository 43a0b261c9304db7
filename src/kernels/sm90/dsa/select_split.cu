// index_select over bf16 pooled keys (glm5_next spec §10.3, §10.4): blocks score a share of a row's pools on
// tensor cores and keep the best of it, then one block a row keeps the best of those. Scores are words of one
// total order, so how pools are shared out decides nothing, and no row's scores are ever in memory as a
// whole.
#include <algorithm>

#include "kernels/sm90/dsa/paged.cuh"
#include "kernels/sm90/dsa/parts.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {
namespace {

using kernels::Sequence;

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kTile = 128;  // pools scored at once, 16 a warp
constexpr int kMaxHeads = 32, kMaxDim = 128;
constexpr int kMostWords = 8192;  // pools of a share
constexpr int kJoinThreads = 1024;
constexpr int kDigits = 256, kCopies = 8;  // of a histogram, against collisions

struct Select {
  Rows<const float> query;   // [T, heads dim]
  Rows<const float> weight;  // [T, heads]
  float scale;
  kernels::DsaCache cache;
  int32_t pool, keep, heads, dim;
  int32_t shares, first_row;
  uint64_t* best;  // [rows, shares, keep]
  Rows<int32_t> pools, count;
};

struct Share {
  int64_t begin, end;
  __device__ Share(const Select& a, int64_t candidates, int share)
      : begin(candidates * share / a.shares), end(candidates * (share + 1) / a.shares) {}
  __device__ int size() const { return static_cast<int>(end - begin); }
};

// Words at or above the result are the `keep` largest of the n > keep, all different, that word(i) gives.
template <int kBlock, class Word>
__device__ uint64_t threshold(int n, int keep, Word word, uint32_t (*histogram)[kCopies], uint32_t* decided) {
  uint64_t prefix = 0;
  uint32_t wanted = static_cast<uint32_t>(keep);
  for (int shift = 56; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < kDigits * kCopies; i += kBlock) (&histogram[0][0])[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += kBlock) {
      const uint64_t w = word(i);
      if (shift == 56 || w >> (shift + 8) == prefix) {
        atomicAdd(&histogram[w >> shift & 0xff][threadIdx.x % kCopies], 1u);
      }
    }
    __syncthreads();
    if (threadIdx.x < 32) {  // eight digits a lane, the largest first
      const int top = kDigits - 1 - 8 * static_cast<int>(threadIdx.x);
      uint32_t counts[8], sum = 0;
      for (int d = 0; d < 8; ++d) {
        counts[d] = 0;
        for (int c = 0; c < kCopies; ++c) counts[d] += histogram[top - d][c];
        sum += counts[d];
      }
      uint32_t before = sum;
      for (int o = 1; o < 32; o *= 2) {
        const uint32_t other = __shfl_up_sync(0xffffffffu, before, o);
        if (threadIdx.x >= static_cast<unsigned>(o)) before += other;
      }
      before -= sum;
      for (int d = 0; d < 8; ++d) {
        if (before < wanted && before + counts[d] >= wanted) {
          decided[0] = static_cast<uint32_t>(top - d), decided[1] = wanted - before;
          decided[2] = counts[d];
        }
        before += counts[d];
      }
    }
    __syncthreads();
    prefix = prefix << 8 | decided[0];
    wanted = decided[1];
    const bool whole = decided[2] == wanted;  // all words of this prefix are wanted
    __syncthreads();
    if (whole) return prefix << shift;
  }
  return prefix;
}

// put(place, word(i)) for the words at or above `least`, in the order of i.
template <int kBlock, class Word, class Put>
__device__ void compact(int n, uint64_t least, Word word, Put put, int* counts) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int base = 0;
  for (int first = 0; first < n; first += kBlock) {
    const int i = first + static_cast<int>(threadIdx.x);
    const uint64_t w = i < n ? word(i) : 0;
    const bool taken = i < n && w >= least;
    const unsigned mask = __ballot_sync(0xffffffffu, taken);
    if (lane == 0) counts[warp] = __popc(mask);
    __syncthreads();
    int place = base, all = 0;
    for (int v = 0; v < kBlock / 32; ++v) {
      if (v < warp) place += counts[v];
      all += counts[v];
    }
    if (taken) put(place + __popc(mask & ((1u << lane) - 1)), w);
    base += all;
    __syncthreads();
  }
}

constexpr int key_pitch(int dim) {
  return 2 * dim + 16;
}
constexpr size_t shared_bytes(int heads, int dim) {
  return kMostWords * sizeof(uint64_t) + static_cast<size_t>(heads / 16) * (dim / 16) * 32 * sizeof(Parts) +
         static_cast<size_t>(2 * kTile * key_pitch(dim));
}

__global__ void __launch_bounds__(kThreads) score_kernel(StepView step, const __grid_constant__ Select a) {
  uint8_t* const memory = dynamic_shared<uint8_t>();
  __shared__ float weights[kMaxHeads];
  __shared__ uint32_t histogram[kDigits][kCopies], decided[3];
  __shared__ int counts[kWarps];
  begin_dependent();
  const int64_t row = blockIdx.x / a.shares, t = a.first_row + row;
  const Sequence& s = step.sequence[step.row_sequence[t]];
  const int64_t candidates = (position_of(s, t) + 1) / a.pool;
  if (candidates <= a.keep) return;
  const int share_index = static_cast<int>(blockIdx.x % a.shares);
  const Share share(a, candidates, share_index);
  const int n = share.size();
  if (n == 0) return;
  const int tiles_of_heads = (a.heads + 15) / 16, steps = a.dim / 16, pitch = key_pitch(a.dim);
  uint64_t* words = reinterpret_cast<uint64_t*>(memory);
  Parts* queries = reinterpret_cast<Parts*>(words + kMostWords);
  uint8_t* keys = reinterpret_cast<uint8_t*>(queries + tiles_of_heads * steps * 32);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q4 = lane % 4;
  const Cached cached(step, a.cache, s);

  const auto fetch = [&](int tile) {  // 16-byte pieces; a key is dim / 8 of them
    uint8_t* to = keys + tile % 2 * kTile * pitch;
    const int each = a.dim / 8;
    for (int i = threadIdx.x; i < kTile * each; i += kThreads) {
      const int r = i / each, c = i % each;
      const int64_t p = share.begin + int64_t{tile} * kTile + r;
      const bool present = p < share.end;
      const uint8_t* from = static_cast<const uint8_t*>(cached.pooled(present ? p : share.begin, a.pool));
      copy_async(to + r * pitch + 16 * c,
                 from + 2 * Cached::pooled_at(present ? p : share.begin, a.pool, a.dim) + 16 * c, present);
    }
    commit_copies();
  };
  fetch(0);
  const float* query = a.query(t);
  for (int k = warp; k < tiles_of_heads * steps; k += kWarps) {
    const int head = k / steps * 16, column = k % steps * 16;
    queries[k * 32 + lane] = split(
        [&](int h, int c) { return head + h < a.heads ? query[(head + h) * a.dim + column + c] : 0.0f; });
  }
  if (threadIdx.x < kMaxHeads) {
    const int h = static_cast<int>(threadIdx.x);
    weights[h] = h < a.heads ? a.scale * a.weight(t)[h] : 0.0f;
  }
  const int tiles = (n + kTile - 1) / kTile;
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) {
      fetch(tile + 1);
      wait_copies<1>();
    } else {
      wait_copies<0>();
    }
    __syncthreads();
    const uint8_t* key =
        keys + tile % 2 * kTile * pitch + (16 * warp + lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * 16;
    float score[2][2] = {};  // of pools 8 n + 2 (lane % 4) + {0, 1}, over this lane's heads
    for (int m = 0; m < tiles_of_heads; ++m) {
      float large[2][4] = {}, small[2][4] = {};
      for (int k = 0; k < steps; ++k) {
        uint32_t b[4];
        load_tiles(b, key + 32 * k);
        const Parts p = queries[(m * steps + k) * 32 + lane];
        multiply_parts(large[0], small[0], p, b[0], b[1]);
        multiply_parts(large[1], small[1], p, b[2], b[3]);
      }
#pragma unroll
      for (int pool = 0; pool < 2; ++pool) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float dot = large[pool][i] + small[pool][i];
          const float w = weights[16 * m + g + i / 2 * 8];
          score[pool][i % 2] = fmaf(w, fmaxf(dot, 0.0f), score[pool][i % 2]);
        }
      }
    }
#pragma unroll
    for (int pool = 0; pool < 2; ++pool) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float v = score[pool][i];
        for (int o = 4; o < 32; o *= 2) v += __shfl_xor_sync(0xffffffffu, v, o);
        const int at = tile * kTile + 16 * warp + 8 * pool + 2 * q4 + i;
        if (g == 0 && at < n) words[at] = candidate(v, share.begin + at);
      }
    }
    __syncthreads();
  }
  uint64_t* best = a.best + (row * a.shares + share_index) * a.keep;
  const auto word = [&](int i) { return words[i]; };
  const uint64_t least = n > a.keep ? threshold<kThreads>(n, a.keep, word, histogram, decided) : uint64_t{0};
  compact<kThreads>(
      n, least, word, [&](int at, uint64_t w) { best[at] = w; }, counts);
}

__global__ void __launch_bounds__(kJoinThreads) join_kernel(StepView step, const __grid_constant__ Select a) {
  int32_t* const start = dynamic_shared<int32_t>();  // [shares + 1]
  __shared__ uint32_t histogram[kDigits][kCopies], decided[3];
  __shared__ int counts[kJoinThreads / 32];
  begin_dependent();
  const int64_t row = blockIdx.x, t = a.first_row + row;
  const Sequence& s = step.sequence[step.row_sequence[t]];
  const int64_t candidates = (position_of(s, t) + 1) / a.pool;
  int32_t* out = a.pools(t);
  if (threadIdx.x == 0) *a.count(t) = static_cast<int32_t>(min(candidates, int64_t{a.keep}));
  if (candidates <= a.keep) {
    for (int i = threadIdx.x; i < a.keep; i += kJoinThreads) out[i] = i < candidates ? i : -1;
    return;
  }
  if (threadIdx.x == 0) {
    int sum = 0;
    for (int i = 0; i < a.shares; ++i) {
      start[i] = sum;
      sum += min(Share(a, candidates, i).size(), a.keep);
    }
    start[a.shares] = sum;
  }
  __syncthreads();
  const int n = start[a.shares];
  const uint64_t* best = a.best + row * a.shares * a.keep;
  const auto word = [&](int i) {  // shares differ by one pool at most, so the guess is off by one at most
    int share = static_cast<int>(int64_t{i} * a.shares / n);
    while (share > 0 && i < start[share]) --share;
    while (i >= start[share + 1]) ++share;
    return best[int64_t{share} * a.keep + (i - start[share])];
  };
  const uint64_t least =
      n > a.keep ? threshold<kJoinThreads>(n, a.keep, word, histogram, decided) : uint64_t{0};
  compact<kJoinThreads>(
      n, least, word, [&](int at, uint64_t w) { out[at] = index_of(w); }, counts);
}

}  // namespace

bool fits_split_select(const kernels::IndexSelect& a) {
  const int64_t dim = a.query.cols / a.heads;
  return a.cache.pooled_dtype == DType::bf16 && a.heads <= kMaxHeads && dim <= kMaxDim && dim % 16 == 0 &&
         a.cache.pooled_offset % 16 == 0 && a.cache.page_stride % 16 == 0 &&
         reinterpret_cast<uintptr_t>(a.cache.base) % 16 == 0;
}

// Blocks that score a row: enough to fill the chip, and so many that a share of any context fits.
int32_t shares_for(int64_t rows, int64_t most_pools) {
  constexpr int64_t kBlocks = 264, kMostShares = 128;
  const int64_t needed = most_pools / kMostWords + 1;
  return static_cast<int32_t>(std::max(needed, std::min(kMostShares, kBlocks / rows)));
}

int64_t select_bytes(int64_t rows, int64_t keep, int64_t most_pools) {
  int64_t shares = 0;
  for (int64_t r = 1; r <= rows; ++r) shares = std::max(shares, r * shares_for(r, most_pools));
  return shares * keep * int64_t{sizeof(uint64_t)};
}

void split_select(cudaStream_t stream, const StepView& step, const kernels::IndexSelect& a, void* scratch,
                  int64_t rows_at_once, int64_t most_pools) {
  Select s{};
  s.query = rows_of<const float>(a.query);
  s.weight = rows_of<const float>(a.weight);
  s.scale = a.scale;
  s.cache = a.cache;
  s.pool = a.pool;
  s.keep = a.topk / a.pool;
  s.heads = static_cast<int32_t>(a.heads);
  s.dim = static_cast<int32_t>(a.query.cols / a.heads);
  s.best = static_cast<uint64_t*>(scratch);
  s.pools = rows_of<int32_t>(a.pools);
  s.count = rows_of<int32_t>(a.count);
  static const bool sized = [] {
    check(cudaFuncSetAttribute(score_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes(kMaxHeads, kMaxDim))),
          "index_select");
    return true;
  }();
  static_cast<void>(sized);
  for (int32_t first = 0; first < step.rows; first += static_cast<int32_t>(rows_at_once)) {
    const int64_t rows = std::min<int64_t>(rows_at_once, step.rows - first);
    s.first_row = first;
    s.shares = shares_for(rows, most_pools);
    launch_dependent(stream, "index_select", blocks_for(rows * s.shares, 1), kThreads,
                     shared_bytes((s.heads + 15) / 16 * 16, s.dim), score_kernel, step, s);
    launch_dependent(stream, "index_select", blocks_for(rows, 1), kJoinThreads,
                     static_cast<size_t>(s.shares + 1) * sizeof(int32_t), join_kernel, step, s);
  }
}

}  // namespace godwit::sm90
