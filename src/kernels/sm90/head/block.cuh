// What a block of the draw does together, and the weights it adds up.
#pragma once

#include "kernels/sm90/device/common.cuh"
#include "kernels/sm90/launches.h"
#include "sample/philox.h"
#include "sample/processors.h"

namespace godwit::sm90::head {

constexpr int kThreads = 256;
constexpr float kNever = -INFINITY;

// Reductions over the block; every thread gets the result, all threads must call.
template <class T, class F>
__device__ T block_fold(T v, F fold) {
  __shared__ T partial[kThreads / 32];
#pragma unroll 1
  for (int offset = 16; offset > 0; offset /= 2) v = fold(v, __shfl_xor_sync(0xffffffffu, v, offset));
  __syncthreads();
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
  __syncthreads();
  T all = partial[0];
#pragma unroll 1
  for (int w = 1; w < kThreads / 32; ++w) all = fold(all, partial[w]);
  return all;
}
template <class T>
__device__ T sum_of(T v) {
  return block_fold(v, [](T a, T b) { return a + b; });
}
__device__ inline uint64_t max_of(uint64_t v) {
  return block_fold(v, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
}

// The sum of what threads before this one give, and of all.
struct Prefix {
  uint64_t before, all;
};
__device__ inline Prefix prefix_of(uint64_t own) {
  __shared__ uint64_t totals[kThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint64_t v = own;
#pragma unroll 1
  for (int o = 1; o < 32; o *= 2) {
    const uint64_t other = __shfl_up_sync(0xffffffffu, v, o);
    if (lane >= o) v += other;
  }
  __syncthreads();
  if (lane == 31) totals[warp] = v;
  __syncthreads();
  Prefix p{v - own, 0};
#pragma unroll 1
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w < warp) p.before += totals[w];
    p.all += totals[w];
  }
  return p;
}

// e^x of an id in units of 2^-45, x = (value - greatest) / temperature. Integers, so that their sums are
// exact in any order, over any number of blocks. None for an id less likely than min_p times the best.
__device__ inline uint64_t units_of(double x, float min_p) {
  if (x <= -32) return 0;
  const double weight = exp(x);
  return weight >= min_p ? static_cast<uint64_t>(weight * 0x1p45) : 0;
}
__device__ inline double exponent_of(float value, float greatest, float temperature) {
  return (static_cast<double>(value) - greatest) / temperature;
}

// Where the draw of a row falls among `all` units.
__device__ inline uint64_t target_of(const sample::SamplingRow& row, uint64_t all) {
  return min(static_cast<uint64_t>(sample::uniform(row) * static_cast<double>(all)), all - 1);
}

// The id where the units of [first, last), `own` together and counted on from `before`, pass `target`; -1
// when they do not.
template <class F>
__device__ inline int32_t walk(int64_t first, int64_t last, uint64_t before, uint64_t own, uint64_t target,
                               F units) {
  if (target < before || target - before >= own) return -1;
#pragma unroll 1
  for (int64_t i = first; i < last; ++i) {
    before += units(i);
    if (before > target) return static_cast<int32_t>(i);
  }
  return -1;
}

__device__ inline bool bit(const uint32_t* words, int64_t i) {
  return (words[i / 32] >> (i % 32)) & 1u;
}

// Penalties and masks of one id, logit_bias being in the logit.
__device__ inline float processed(const kernels::Sample& a, const sample::SamplingRow& row, int64_t vocab,
                                  int64_t i, float l) {
  if (row.history != 0) {
    const int32_t seen = a.history.counts[row.slot * a.history.stride + i];
    const int32_t times = seen & (sample::kInPrompt - 1);
    if (seen != 0) l = l > 0 ? l / row.repetition_penalty : l * row.repetition_penalty;
    if (times > 0) l -= row.presence_penalty + row.frequency_penalty * static_cast<float>(times);
  }
  const bool allowed = row.mask < 0 || bit(a.masks + row.mask * ((vocab + 31) / 32), i);
  if (!allowed || (a.banned != nullptr && bit(a.banned, i))) l = kNever;
  if (row.stop_suppressed != 0) {
#pragma unroll 1
    for (int32_t s = 0; s < a.stop_count; ++s)
      if (a.stop_ids[s] == i) l = kNever;
  }
  return l;
}

}  // namespace godwit::sm90::head
