// index_select (glm5_next spec §10.3, §10.4), plain form: one block a row scores tiles of pools, one thread a
// pool, and keeps a running top-k in shared memory. Candidates are words of one total order, so the order in
// which threads append them does not matter: the list is sorted whenever it is full.
#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/dsa/coded.cuh"
#include "kernels/sm90/dsa/paged.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {
namespace {

using kernels::Sequence;

constexpr int kThreads = 256;
constexpr int kTile = kThreads;  // pools scored between two looks at the list
constexpr int kGroup = 8;        // heads whose products a thread carries at once

struct Select {
  Rows<const float> query;   // [T, heads dim]
  Rows<const float> weight;  // [T, heads]
  float scale;
  kernels::DsaCache cache;
  int32_t pool, keep, heads, padded_heads;
  int32_t capacity;  // of the list, a power of two >= keep + kTile
  int64_t dim;
  Rows<int32_t> pools, count;
};

// Bitonic, descending; n is a power of two.
__device__ void sort_descending(uint64_t* words, int n) {
  for (int run = 2; run <= n; run *= 2) {
    for (int half = run / 2; half > 0; half /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < n / 2; i += kThreads) {
        const int low = i / half * 2 * half + i % half;
        const uint64_t a = words[low], b = words[low + half];
        const bool descending = (low & run) == 0;
        if ((a < b) == descending) words[low] = b, words[low + half] = a;
      }
    }
  }
  __syncthreads();
}

// q: [dim, padded_heads] of this row. Heads ascend, channels ascend.
template <class K>
__device__ float score(const Select& a, const float* q, const float* weight, const StoredValues& key) {
  float total = 0;
  for (int32_t h = 0; h < a.heads; h += kGroup) {
    float dot[kGroup] = {};
    for (int64_t c = 0; c < a.dim; ++c) {
      const float k = key.at<K>(c);
      const float* row = q + c * a.padded_heads + h;
#pragma unroll
      for (int g = 0; g < kGroup; ++g) dot[g] = fmaf(row[g], k, dot[g]);
    }
#pragma unroll
    for (int g = 0; g < kGroup; ++g) total = fmaf(weight[h + g], fmaxf(dot[g], 0.0f), total);
  }
  return total;
}

// Fills the list up with words below every candidate, sorts it and keeps the best.
__device__ void cut(uint64_t* words, int capacity, int keep, int* size) {
  const int listed = *size;
  for (int i = listed + threadIdx.x; i < capacity; i += kThreads) words[i] = 0;
  sort_descending(words, capacity);
  if (threadIdx.x == 0) *size = min(listed, keep);
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads) select_kernel(StepView step, Select a) {
  begin_dependent();
  uint64_t* const words = dynamic_shared<uint64_t>();  // [capacity], then queries and weights
  float* q = reinterpret_cast<float*>(words + a.capacity);
  float* weight = q + a.dim * a.padded_heads;
  __shared__ int size;
  const int64_t t = blockIdx.x;
  const Sequence& s = step.sequence[step.row_sequence[t]];
  const int64_t candidates = (position_of(s, t) + 1) / a.pool;
  int32_t* out = a.pools(t);
  if (threadIdx.x == 0) *a.count(t) = static_cast<int32_t>(min(candidates, int64_t{a.keep}));
  if (candidates <= a.keep) {
    for (int i = threadIdx.x; i < a.keep; i += kThreads) out[i] = i < candidates ? i : -1;
    return;
  }
  const int groups = static_cast<int>(kernels::fp8_groups(a.dim));
  for (int i = threadIdx.x / 32; i < a.padded_heads * groups; i += kThreads / 32) {  // a warp each
    const int h = i / groups, first = i % groups * static_cast<int>(kFp8Block);
    const int length = min(static_cast<int>(kFp8Block), static_cast<int>(a.dim) - first);
    const int lane = threadIdx.x % 32;
    float x[4];
    for (int j = 0; j < 4; ++j) {
      const int c = 4 * lane + j;
      x[j] = h < a.heads && c < length ? a.query(t)[h * a.dim + first + c] : 0.0f;
    }
    if (a.cache.pooled_dtype == DType::f8_e4m3) meet_coded_keys(x, length);
    for (int j = 0; j < 4; ++j) {
      if (4 * lane + j < length) q[(first + 4 * lane + j) * a.padded_heads + h] = x[j];
    }
  }
  for (int h = threadIdx.x; h < a.padded_heads; h += kThreads) {
    weight[h] = h < a.heads ? a.scale * a.weight(t)[h] : 0.0f;
  }
  if (threadIdx.x == 0) size = 0;
  __syncthreads();
  const Cached cached(step, a.cache, s);
  uint64_t least = 0;  // of the kept, once there are enough: nothing below it can be chosen
  for (int64_t first = 0; first < candidates; first += kTile) {
    const bool full = size + kTile > a.capacity;
    __syncthreads();  // every thread has read the size before anyone appends
    if (full) {
      cut(words, a.capacity, a.keep, &size);
      least = words[a.keep - 1];
    }
    const int64_t p = first + threadIdx.x;
    if (p < candidates) {
      const StoredValues key = cached.stored_key(p, a.pool, a.dim);
      const float value = a.cache.pooled_dtype == DType::f32    ? score<float>(a, q, weight, key)
                          : a.cache.pooled_dtype == DType::bf16 ? score<bf16>(a, q, weight, key)
                                                                : score<f8_e4m3>(a, q, weight, key);
      const uint64_t word = candidate(value, p);
      if (word > least) words[atomicAdd(&size, 1)] = word;
    }
    __syncthreads();
  }
  cut(words, a.capacity, a.keep, &size);
  // The low half of a word is ~pool: sorted again by it, pools ascend.
  for (int i = threadIdx.x; i < a.capacity; i += kThreads) {
    words[i] = i < a.keep ? words[i] & 0xffffffffu : 0;
  }
  sort_descending(words, a.capacity);
  for (int i = threadIdx.x; i < a.keep; i += kThreads) out[i] = index_of(words[i]);
}

}  // namespace

void index_select(cudaStream_t stream, const StepView& step, const kernels::IndexSelect& a) {
  if (step.rows == 0) return;
  Select s{};
  s.query = rows_of<const float>(a.query);
  s.weight = rows_of<const float>(a.weight);
  s.scale = a.scale;
  s.cache = a.cache;
  s.pool = a.pool;
  s.keep = a.topk / a.pool;
  s.heads = static_cast<int32_t>(a.heads);
  s.padded_heads = (s.heads + kGroup - 1) / kGroup * kGroup;
  s.dim = a.query.cols / a.heads;
  s.pools = rows_of<int32_t>(a.pools);
  s.count = rows_of<int32_t>(a.count);
  s.capacity = 2 * kTile;
  while (s.capacity < s.keep + kTile) s.capacity *= 2;
  const size_t bytes =
      s.capacity * sizeof(uint64_t) + static_cast<size_t>((s.dim + 1) * s.padded_heads) * sizeof(float);
  // Above the 48 KiB that need no asking; the same for every shape that prepare() accepts.
  check(cudaFuncSetAttribute(select_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 128 << 10),
        "index_select");
  launch_dependent(stream, "index_select", blocks_for(step.rows, 1), kThreads, bytes, select_kernel, step, s);
}

}  // namespace godwit::sm90
