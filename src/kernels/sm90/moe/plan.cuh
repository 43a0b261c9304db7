// Sorts the chosen experts into groups: one block counts, sums up and scatters.
#pragma once

#include "kernels/sm90/moe/groups.cuh"

namespace godwit::sm90 {

// Inclusive sum over the block; both halves of a word are sums of their own. All threads must call.
__device__ inline uint64_t block_scan(uint64_t v, uint64_t* totals) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
  for (int o = 1; o < 32; o *= 2) {
    const uint64_t other = __shfl_up_sync(0xffffffffu, v, o);
    if (lane >= o) v += other;
  }
  __syncthreads();  // an earlier call's reads are done
  if (lane == 31) totals[warp] = v;
  __syncthreads();
#pragma unroll 1
  for (int w = 0; w < warp; ++w) v += totals[w];
  return v;
}

__device__ inline Group group_of(const kernels::ExpertWeights& e, int expert, int first, int rows) {
  return {expert,
          first,
          rows,
          static_cast<int32_t>(e.gate.scale_stride),
          static_cast<int32_t>(e.down.scale_stride),
          {},
          e.gate.data.data,
          e.up.data.data,
          e.down.data.data,
          e.gate.scales,
          e.up.scales,
          e.down.scales};
}

// By a block of at least as many threads as there are choices (T k <= kFewChoices): every choice counts those
// before it. Shared memory: kFewChoices words. chosen_by(row, choice): an expert of the model.
constexpr int kFewChoices = 128;

template <class ChosenBy>
__device__ inline void plan_few(const Choice& a, int32_t* key, ChosenBy chosen_by) {
  const int i = static_cast<int>(threadIdx.x), entries = a.rows * a.chosen;
  int32_t e = -1;
  uint32_t t = 0;
  if (i < entries) {
    t = static_cast<uint32_t>(i) / static_cast<uint32_t>(a.chosen);
    e = chosen_by(static_cast<int>(t), i - static_cast<int>(t) * a.chosen) - a.first;
    if (e >= a.held) e = -1;
    key[i] = e;
  }
  const bool held = e >= 0;
  const int routed_rows = __syncthreads_count(held);
  int before = 0, earlier = 0, all = 0;  // choices of lower experts; of this one: before this row's, in all
#pragma unroll 4
  for (int j = 0; j < entries; ++j) {
    before += key[j] >= 0 && key[j] < e;
    earlier += key[j] == e && j < i;
    all += key[j] == e;
  }
  const bool begins = held && earlier % a.width == 0;
  const int routed = __syncthreads_count(begins);
  // From here on a key says whether a group begins with the choice.
  if (held && !begins) key[i] = a.held;
  __syncthreads();
  if (held) {
    a.to.entry[before + earlier] = i;
    a.to.token[before + earlier] = static_cast<int32_t>(t);
  }
  if (begins) {
    int group = 0;
#pragma unroll 4
    for (int j = 0; j < entries; ++j) group += key[j] >= 0 && (key[j] < e || (key[j] == e && j < i));
    a.to.group[group] = group_of(a.experts[e], e, before + earlier, min(a.width, all - earlier));
  }
  const int shared = a.has_shared ? (a.rows + a.width - 1) / a.width : 0;
  if (i < shared) {
    a.to.group[routed + i] =
        group_of(a.shared, -1, routed_rows + i * a.width, min(a.width, a.rows - i * a.width));
  }
  if (a.has_shared && i < a.rows) {
    a.to.entry[routed_rows + i] = entries + i;
    a.to.token[routed_rows + i] = i;
  }
  if (i == 0) a.to.count[0] = routed, a.to.count[1] = shared, a.to.count[kClaimed] = 0;
}

// Shared memory: two words for each expert held.
constexpr size_t plan_bytes(int64_t held) {
  return 2 * sizeof(int32_t) * static_cast<size_t>(held);
}

// By a whole block.
template <int kThreads>
__device__ void plan(const Choice& a, int32_t* memory) {
  __shared__ uint64_t totals[kThreads / 32];
  int32_t *count = memory, *next = memory + a.held;  // of each expert: its entries, where the next goes
#pragma unroll 1
  for (int e = threadIdx.x; e < a.held; e += kThreads) count[e] = 0;
  __syncthreads();
  const int entries = a.rows * a.chosen;
  const auto chosen = static_cast<uint32_t>(a.chosen);
  // f(choice, expert on this rank) for those that are held. Of a prompt a thread has a hundred: it asks for
  // eight at once.
  const auto for_each = [&](auto f) {
    constexpr int kAtOnce = 8;
#pragma unroll 1
    for (int first = threadIdx.x; first < entries; first += kAtOnce * kThreads) {
      int expert[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int i = first + k * kThreads;
        const uint32_t t = static_cast<uint32_t>(i) / chosen;
        expert[k] = i < entries ? __ldcg(a.ids(t) + (static_cast<uint32_t>(i) - t * chosen)) - a.first : -1;
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (expert[k] >= 0 && expert[k] < a.held) f(first + k * kThreads, expert[k]);
      }
    }
  };
  for_each([&](int, int e) { atomicAdd(count + e, 1); });
  __syncthreads();
  uint64_t before = 0;  // entries in the low half, groups in the high one
#pragma unroll 1
  for (int first = 0; first < a.held; first += kThreads) {
    const int e = first + static_cast<int>(threadIdx.x);
    const int rows = e < a.held ? count[e] : 0;
    const int groups = (rows + a.width - 1) / a.width;
    const uint64_t own = static_cast<uint64_t>(groups) << 32 | static_cast<uint32_t>(rows);
    const uint64_t sum = before + block_scan(own, totals);
    const uint64_t start = sum - own;
    if (e < a.held) next[e] = static_cast<int32_t>(start & 0xffffffffu);
#pragma unroll 1
    for (int g = 0; g < groups; ++g) {
      a.to.group[(start >> 32) + g] =
          group_of(a.experts[e], e, static_cast<int32_t>(start & 0xffffffffu) + g * a.width,
                   min(a.width, rows - g * a.width));
    }
    __syncthreads();
    if (threadIdx.x == kThreads - 1) totals[0] = sum;
    __syncthreads();
    before = totals[0];
  }
  __syncthreads();
  for_each([&](int i, int e) {
    const int at = atomicAdd(next + e, 1);
    a.to.entry[at] = i;
    a.to.token[at] = static_cast<int32_t>(static_cast<uint32_t>(i) / chosen);
  });
  const int routed_rows = static_cast<int>(before & 0xffffffffu), routed = static_cast<int>(before >> 32);
  const int shared = a.has_shared ? (a.rows + a.width - 1) / a.width : 0;
#pragma unroll 1
  for (int g = threadIdx.x; g < shared; g += kThreads) {
    a.to.group[routed + g] =
        group_of(a.shared, -1, routed_rows + g * a.width, min(a.width, a.rows - g * a.width));
  }
#pragma unroll 1
  for (int t = threadIdx.x; t < (a.has_shared ? a.rows : 0); t += kThreads) {
    a.to.entry[routed_rows + t] = entries + t;
    a.to.token[routed_rows + t] = t;
  }
  if (threadIdx.x == 0) a.to.count[0] = routed, a.to.count[1] = shared, a.to.count[kClaimed] = 0;
}

}  // namespace godwit::sm90
