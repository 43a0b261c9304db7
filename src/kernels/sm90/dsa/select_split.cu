// index_select over bf16 or fp8 pooled keys (glm5_next spec §10.3, §10.4) in two launches: scores (score.cu),
// then one block a row picks the best of them. The best `keep` pools lie in the best `keep` chunks of pools,
// ordered by their maxima and then by their place: of a pool in any other chunk, each of those has one that
// comes before it. So a block never looks at more than keep chunks' pools, whatever the context. Words are
// totally ordered with their place, and places ascend with threads: the result is ascending without a sort.
#include <algorithm>
#include <bit>

#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/dsa/scores.cuh"

namespace godwit::sm90 {
namespace {

using kernels::Sequence;

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr int kMostWords = 1 << 14;  // that a block looks at
constexpr int kDigitBits = 11, kDigits = 1 << kDigitBits;
static_assert(kMostKept <= kMostWords / kChunk);
constexpr int64_t kMostPools = int64_t{kMostWords} * kChunk;
constexpr int kVectors = kMostWords / 4;
constexpr size_t kSharedBytes = (kVectors + kVectors / 8) * sizeof(uint4);

struct Select {
  SelectRows rows;
  Scores scores;
  Rows<int32_t> pools, count;
};

// The sum over all threads before this one; `all`: [kWarps]. Every thread must call.
__device__ uint32_t before_me(uint32_t value, uint32_t* all) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint32_t sum = value;
  for (int o = 1; o < 32; o *= 2) {
    const uint32_t other = __shfl_up_sync(0xffffffffu, sum, o);
    if (lane >= o) sum += other;
  }
  if (lane == 31) all[warp] = sum;
  __syncthreads();
  uint32_t earlier = lane < warp ? all[lane] : 0;  // at most 32 warps
  for (int o = 16; o > 0; o /= 2) earlier += __shfl_xor_sync(0xffffffffu, earlier, o);
  return earlier + sum - value;
}

// The words of a level in shared memory. A thread has a run of vectors; the gaps keep equal places of
// neighbouring runs in different banks.
struct Words {
  uint4* vectors;
  int begin, end;  // of this thread
  __device__ uint4& operator[](int v) const { return vectors[v + v / 8]; }
};

// The largest words are those whose bits from `shift` on are above `prefix`, and the first `equal` of those
// whose bits are `prefix`.
struct Cut {
  uint32_t prefix, shift, equal;
};

// At least `keep` words are at or above `floor`: the others are not looked at.
__device__ Cut cut(const Words& words, uint32_t keep, uint32_t floor, uint4* histogram, uint32_t* all,
                   uint32_t* decided) {
  Cut c{0, 32, keep};
#pragma unroll 1
  do {
    const uint32_t bits = min(c.shift, uint32_t{kDigitBits});
    c.shift -= bits;
    constexpr int kOwn = kDigits / kThreads;  // digits of a thread
    static_assert(kOwn == 4);
    histogram[threadIdx.x] = {0, 0, 0, 0};
    __syncthreads();
    const uint32_t base = c.prefix << bits;
#pragma unroll 1
    for (int v = words.begin; v < words.end; ++v) {
      const uint4 four = words[v];
      const auto count = [&](uint32_t word) {
        const uint32_t digit = (word >> c.shift) - base;
        if (digit < 1u << bits && word >= floor) atomicAdd(&histogram[0].x + digit, 1u);
      };
      count(four.x), count(four.y), count(four.z), count(four.w);
    }
    __syncthreads();
    // The largest digits first.
    const int own = kDigits / kOwn - 1 - static_cast<int>(threadIdx.x);
    const uint4 counts = histogram[own];
    const uint32_t sum = (counts.x + counts.y) + (counts.z + counts.w);
    uint32_t before = before_me(sum, all);
    if (before < c.equal && before + sum >= c.equal) {
      const uint32_t each[kOwn] = {counts.w, counts.z, counts.y, counts.x};
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        if (before < c.equal && before + each[i] >= c.equal) {
          decided[0] = static_cast<uint32_t>(own * kOwn + kOwn - 1 - i);
          decided[1] = c.equal - before;
          decided[2] = each[i];
        }
        before += each[i];
      }
    }
    __syncthreads();
    c.prefix = c.prefix << bits | decided[0];
    c.equal = decided[1];
  } while (c.shift > 0 && decided[2] != c.equal);  // else all words of the prefix are wanted
  return c;
}

__global__ void __launch_bounds__(kThreads) select_kernel(StepView step, const __grid_constant__ Select a) {
  __shared__ uint4 histogram[kDigits / 4];
  __shared__ uint32_t all[kWarps], decided[3];
  __shared__ int32_t chunks[kMostKept];
  Words words{dynamic_shared<uint4>(), 0, 0};
  let_next_start();
  const int64_t t = a.rows.first + blockIdx.x;
  const int keep = a.rows.keep;
  const int32_t candidates = candidates_of(a.rows, step.sequence[step.row_sequence[t]], t);
  int32_t* const out = a.pools(t);
  wait_for_previous();
  if (threadIdx.x == 0) *a.count(t) = min(candidates, keep);
  if (candidates <= keep) {
    for (int i = threadIdx.x; i < keep; i += kThreads) out[i] = i < candidates ? i : -1;
    return;
  }
  const bool in_chunks = candidates > kMostWords;
  uint32_t floor = 0;
#pragma unroll 1
  for (int level = in_chunks ? 1 : 0; level >= 0; --level) {
    const bool listed = in_chunks && level == 0;  // words are those of the chunks chosen
    const uint32_t* from = level == 1 ? a.scores.best + blockIdx.x * (a.scores.stride / kChunk)
                                      : a.scores.all + blockIdx.x * a.scores.stride;
    const int count = level == 1 ? (candidates + kChunk - 1) / kChunk : listed ? keep * kChunk : candidates;
    const int vectors = (count + 3) / 4;
    const auto place = [&](int v) {  // in `from`, of a vector's first word
      return listed ? chunks[v / (kChunk / 4)] * kChunk + 4 * v % kChunk : 4 * v;
    };
#pragma unroll 1
    for (int v = threadIdx.x; v < vectors; v += kThreads) copy_async(&words[v], from + place(v), true);
    commit_copies();
    const int each = (vectors + kThreads - 1) / kThreads;
    words.begin = min(vectors, static_cast<int>(threadIdx.x) * each);
    words.end = min(vectors, words.begin + each);
    wait_copies<0>();
    const Cut c = cut(words, static_cast<uint32_t>(keep), floor, histogram, all, decided);
    floor = c.prefix << c.shift;  // every chunk chosen has a word that large
    uint32_t counts = 0;          // above, and equal << 16
#pragma unroll 1
    for (int v = words.begin; v < words.end; ++v) {
      const uint4 four = words[v];
      const auto add = [&](uint32_t word) {
        const uint32_t bits = word >> c.shift;
        counts += bits > c.prefix ? 1u : bits == c.prefix ? 0x10000u : 0u;
      };
      add(four.x), add(four.y), add(four.z), add(four.w);
    }
    const uint32_t earlier = before_me(counts, all);
    uint32_t above = earlier & 0xffffu, equal = earlier >> 16;
    int32_t* const to = level == 1 ? chunks : out;
#pragma unroll 1
    for (int v = words.begin; v < words.end; ++v) {
      const uint4 four = words[v];
      const int first = place(v);
      const auto put = [&](uint32_t word, int i) {
        const uint32_t bits = word >> c.shift;
        const bool is_above = bits > c.prefix, is_equal = bits == c.prefix;
        if (is_above || (is_equal && equal < c.equal)) to[above + min(equal, c.equal)] = first + i;
        above += is_above ? 1 : 0;
        equal += is_equal ? 1 : 0;
      };
      put(four.x, 0), put(four.y, 1), put(four.z, 2), put(four.w, 3);
    }
    __syncthreads();  // chunks are listed, and `all` is read
  }
}

// Of a row: whole vectors of maxima.
int64_t stride_for(int64_t most_pools) {
  constexpr int64_t kWhole = 4 * kChunk;
  return (most_pools + kWhole - 1) / kWhole * kWhole;
}
int64_t row_words(int64_t most_pools) {
  return stride_for(most_pools) / kChunk * (kChunk + 1);
}
// Rows whose scores fit the workspace, which no context makes larger than kMostScores (design §8).
int64_t rows_at_once(int64_t rows, int64_t most_pools) {
  constexpr int64_t kMostScores = int64_t{1} << 23;
  return std::clamp(kMostScores / std::max<int64_t>(row_words(most_pools), 1), int64_t{1},
                    std::max<int64_t>(rows, 1));
}

}  // namespace

bool fits_split_select(const kernels::IndexSelect& a, int64_t most_pools) {
  return fits_score(a) && a.topk / a.pool <= kMostKept && most_pools <= kMostPools;
}

int64_t select_bytes(int64_t rows, int64_t most_pools) {
  return rows_at_once(rows, most_pools) * row_words(most_pools) * int64_t{sizeof(uint32_t)};
}

void split_select(cudaStream_t stream, const StepView& step, const kernels::IndexSelect& a, void* scratch,
                  int64_t rows, int64_t most_pools) {
  rows = rows_at_once(rows, most_pools);
  Select s{};
  s.scores.stride = stride_for(most_pools);
  s.scores.all = static_cast<uint32_t*>(scratch);
  s.scores.best = s.scores.all + rows * s.scores.stride;
  s.pools = rows_of<int32_t>(a.pools);
  s.count = rows_of<int32_t>(a.count);
  static const bool sized = [] {
    check(cudaFuncSetAttribute(select_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(kSharedBytes)),
          "index_select");
    return true;
  }();
  static_cast<void>(sized);
  for (int32_t first = 0; first < step.decode_rows; first += static_cast<int32_t>(rows)) {
    const auto count = static_cast<int32_t>(std::min<int64_t>(rows, step.decode_rows - first));
    s.rows = {first, count, std::countr_zero(static_cast<uint32_t>(a.pool)), a.topk / a.pool};
    score(stream, step, a, s.rows, s.scores);
    launch_dependent(stream, "index_select", blocks_for(count, 1), kThreads, kSharedBytes, select_kernel,
                     step, s);
  }
}

}  // namespace godwit::sm90
