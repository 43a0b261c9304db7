// Finds the places of a slice's choices: blocks count the choices of their rows by expert, then each sums up
// what lies before its own and hands out places.
#include "kernels/sm90/moe/places.cuh"

#include "kernels/sm90/device/warpgroup.cuh"
#include "kernels/sm90/moe/plan.cuh"

namespace godwit::sm90 {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr int kAtOnce = 4;  // choices that a thread asks for at once

// f(choice, its expert on this rank, or -1) for the choices of this block.
template <class F>
__device__ void for_each_choice(const Places& a, F f) {
  const auto chosen = static_cast<uint32_t>(a.chosen);
  const auto entries = static_cast<uint32_t>(a.rows) * chosen;
  const uint32_t share = (entries + static_cast<uint32_t>(a.blocks) - 1) / static_cast<uint32_t>(a.blocks);
  const uint32_t begin = blockIdx.x * share, end = min(entries, begin + share);
#pragma unroll 1
  for (uint32_t first = begin + threadIdx.x; first < end; first += kAtOnce * kThreads) {
    int32_t expert[kAtOnce];
#pragma unroll
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      const uint32_t i = first + k * kThreads, t = i / chosen;
      expert[k] = i < end ? a.ids(t)[i - t * chosen] - a.first : -1;
    }
#pragma unroll
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      const uint32_t i = first + k * kThreads;
      if (i < end) f(i, expert[k] < a.held ? expert[k] : -1);
    }
  }
}

__global__ void __launch_bounds__(kThreads) count_kernel(const __grid_constant__ Places a) {
  auto* count = dynamic_shared<int32_t>();  // [held]
#pragma unroll 1
  for (int e = threadIdx.x; e < a.held; e += kThreads) count[e] = 0;
  begin_dependent();
  __syncthreads();
  for_each_choice(a, [&](uint32_t, int32_t e) {
    if (e >= 0) atomicAdd(count + e, 1);
  });
  __syncthreads();
#pragma unroll 1
  for (int e = threadIdx.x; e < a.held; e += kThreads)
    a.counts[static_cast<int64_t>(blockIdx.x) * a.held + e] = count[e];
}

__global__ void __launch_bounds__(kThreads) place_kernel(const __grid_constant__ Places a) {
  __shared__ uint64_t totals[kWarps];
  auto *all = dynamic_shared<int32_t>(), *next = all + a.held;  // of an expert: choices; where the next goes
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
  for (int e = threadIdx.x; e < 2 * a.held; e += kThreads) all[e] = 0;
  let_next_start();
  // The maps are read by the launch after the next one, and what they are made of is older than this step.
  wait_for_previous();
#pragma unroll 1
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < 3 * a.held; i += gridDim.x * kThreads) {
    const uint32_t e = static_cast<uint32_t>(i) / 3, of = static_cast<uint32_t>(i) - 3 * e;
    const kernels::ExpertWeights& w = a.experts[e];
    put_tensor_map(a.maps + i, of < 2 ? a.up_model : a.down_model,
                   of == 0   ? w.gate.data.data
                   : of == 1 ? w.up.data.data
                             : w.down.data.data);
  }
  __syncthreads();
#pragma unroll 1
  for (int e = lane; e < a.held; e += 32) {
    int sum = 0, before = 0;
#pragma unroll 8
    for (int b = warp; b < a.blocks; b += kWarps) {
      const int count = a.counts[static_cast<int64_t>(b) * a.held + e];
      sum += count;
      if (b < static_cast<int>(blockIdx.x)) before += count;
    }
    atomicAdd(all + e, sum);
    atomicAdd(next + e, before);
  }
  __syncthreads();
  uint64_t before = 0;  // choices in the low half, groups in the high one
#pragma unroll 1
  for (int first = 0; first < a.held; first += kThreads) {
    const int e = first + static_cast<int>(threadIdx.x);
    const int rows = e < a.held ? all[e] : 0;
    const int groups = (rows + kGroupRows - 1) / kGroupRows;
    const uint64_t own = static_cast<uint64_t>(groups) << 32 | static_cast<uint32_t>(rows);
    const uint64_t sum = before + block_scan(own, totals);
    const auto start = static_cast<int32_t>((sum - own) & 0xffffffffu);
    if (e < a.held) next[e] += start;
    if (blockIdx.x == 0) {
#pragma unroll 1
      for (int g = 0; g < groups; ++g)
        a.group[((sum - own) >> 32) + g] = {e, start + g * kGroupRows,
                                            min(kGroupRows, rows - g * kGroupRows)};
    }
    __syncthreads();
    if (threadIdx.x == kThreads - 1) totals[0] = sum;
    __syncthreads();
    before = totals[0];
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) *a.groups = static_cast<int32_t>(before >> 32);
  for_each_choice(a, [&](uint32_t i, int32_t e) { a.place[i] = e >= 0 ? atomicAdd(next + e, 1) : -1; });
}

constexpr int64_t aligned(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

}  // namespace

int64_t place_bytes(int64_t rows, int64_t chosen, int64_t experts) {
  const int64_t entries = rows * chosen;
  return aligned(3 * experts * int64_t{sizeof(TensorMap)}) +
         aligned(most_place_groups(entries, experts) * int64_t{sizeof(PlaceGroup)}) +
         (kPlaceBlocks * experts + entries + 1) * int64_t{sizeof(int32_t)};
}

void lay_out(Places& a, void* scratch) {
  const int64_t entries = int64_t{a.rows} * a.chosen;
  constexpr int64_t kPerBlock = 2 * kThreads;
  a.blocks = static_cast<int32_t>(std::min<int64_t>(kPlaceBlocks, (entries + kPerBlock - 1) / kPerBlock));
  auto* at = static_cast<std::byte*>(scratch);
  a.maps = reinterpret_cast<TensorMap*>(at);
  at += aligned(3 * int64_t{a.held} * int64_t{sizeof(TensorMap)});
  a.group = reinterpret_cast<PlaceGroup*>(at);
  at += aligned(most_place_groups(entries, a.held) * int64_t{sizeof(PlaceGroup)});
  a.groups = reinterpret_cast<int32_t*>(at);
  a.counts = a.groups + 1;
  a.place = a.counts + int64_t{a.blocks} * a.held;
}

void find_places(cudaStream_t stream, const Places& a) {
  const auto blocks = static_cast<unsigned>(a.blocks);
  const size_t words = sizeof(int32_t) * static_cast<size_t>(a.held);
  launch_dependent(stream, "experts", blocks, kThreads, words, count_kernel, a);
  launch_dependent(stream, "experts", blocks, kThreads, 2 * words, place_kernel, a);
}

}  // namespace godwit::sm90
