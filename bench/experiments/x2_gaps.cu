// X2, X3, X6: what a dependency between two launches costs with and without programmatic dependent launch
// (PDL), whether two persistent CTAs of 104 KB share an SM, and what a grid-wide barrier costs.
#include "common.cuh"

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) empty_kernel(bool pdl) {
  if (!pdl) return;
  let_next_start();
  wait_for_previous();
}

// Streams `bytes` of weights through a cp.async ring of 80 KB. With PDL the ring fills before the wait; the
// next launch is let go at the start or after the wait.
enum class Trigger { none, at_start, after_wait };
constexpr int kWarps = kThreads / 32, kStages = 5, kStageVectors = 128;
constexpr size_t kRing = size_t{kWarps} * kStages * kStageVectors * 16;

__global__ void __launch_bounds__(kThreads)
    stream_kernel(const uint4* data, int64_t count, uint32_t* out, Trigger trigger, bool fill_before_wait) {
  extern __shared__ uint4 memory[];
  if (trigger == Trigger::at_start) let_next_start();
  if (trigger != Trigger::none && !fill_before_wait) wait_for_previous();
  const int lane = threadIdx.x % 32;
  uint4* ring = memory + (threadIdx.x / 32) * kStages * kStageVectors;
  const int64_t warp = blockIdx.x * int64_t{kWarps} + threadIdx.x / 32, warps = int64_t{gridDim.x} * kWarps;
  const int64_t stages = count / kStageVectors;
  const auto fill = [&](int64_t s, int slot) {
    if (s < stages) {
      for (int j = 0; j < kStageVectors / 32; ++j) {
        copy_async(ring + slot * kStageVectors + j * 32 + lane, data + s * kStageVectors + j * 32 + lane);
      }
    }
    commit_copies();
  };
  for (int k = 0; k < kStages - 1; ++k) fill(warp + k * warps, k);
  if (trigger != Trigger::none && fill_before_wait) wait_for_previous();
  if (trigger == Trigger::after_wait) let_next_start();
  uint32_t sum = 0;
  int slot = 0;
  for (int64_t s = warp; s < stages; s += warps) {
    fill(s + (kStages - 1) * warps, (slot + kStages - 1) % kStages);
    wait_copies<kStages - 1>();
    __syncwarp();
    for (int j = 0; j < kStageVectors / 32; ++j) {
      const uint4 v = ring[slot * kStageVectors + j * 32 + lane];
      sum += v.x + v.y + v.z + v.w;
    }
    __syncwarp();
    slot = (slot + 1) % kStages;
  }
  out[blockIdx.x * kThreads + threadIdx.x] = sum;
}

__device__ uint64_t now() {
  uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}
__device__ uint32_t sm() {
  uint32_t id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
}

struct Seen {
  uint64_t start, end;
  uint32_t sm;
};

// The first lets the next one start and stays for 100 us; the next one notes when and where it came up.
__global__ void __launch_bounds__(kThreads) stay_kernel(Seen* seen, bool first) {
  if (first) let_next_start();
  if (threadIdx.x == 0) seen[blockIdx.x] = {now(), 0, sm()};
  if (!first) wait_for_previous();
  const uint64_t until = now() + (first ? 100000 : 0);
  while (now() < until) {
  }
  if (threadIdx.x == 0) seen[blockIdx.x].end = now();
}

__global__ void __launch_bounds__(kThreads) barrier_kernel(uint32_t* counter, int rounds) {
  for (int r = 1; r <= rounds; ++r) {
    __syncthreads();
    if (threadIdx.x == 0) {
      const uint32_t target = static_cast<uint32_t>(r) * gridDim.x;
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
      uint32_t seen = 0;
      while (seen < target)
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
    }
    __syncthreads();
  }
}

}  // namespace

int main() {
  constexpr int kChain = 100, kRounds = 30;
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "stream");
  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0), "attribute");
  std::printf("{\"chain\": %d, \"graph_replays\": %d,\n\"X2_empty\": [\n", kChain, kRounds);
  for (const int blocks : {1, sms}) {
    for (const bool pdl : {false, true}) {
      const Spread t = time_graph(stream, kRounds, [&] {
        for (int i = 0; i < kChain; ++i) launch(stream, pdl, blocks, kThreads, 0, empty_kernel, pdl);
      });
      std::printf("  {\"ctas\": %d, \"pdl\": %s, \"us_per_launch\": %.3f, \"min\": %.3f, \"max\": %.3f}%s\n",
                  blocks, pdl ? "true" : "false", t.median / kChain, t.least / kChain, t.most / kChain,
                  blocks == sms && pdl ? "" : ",");
    }
  }
  std::printf("],\n\"X2_stream\": [\n");
  constexpr int64_t kPool = int64_t{2048} << 20;
  uint4* pool;
  uint32_t* out;
  check(cudaMalloc(&pool, kPool), "pool");
  check(cudaMalloc(&out, size_t{4096} * kThreads * 4), "out");
  fill_kernel<<<1024, 256, 0, stream>>>(reinterpret_cast<uint32_t*>(pool), kPool / 4);
  check(cudaFuncSetAttribute(stream_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 << 10),
        "shared");
  struct Mode {
    const char* name;
    Trigger trigger;
    bool fill_before_wait;
  };
  const Mode modes[] = {{"no PDL", Trigger::none, false},
                        {"PDL, wait first, trigger at start", Trigger::at_start, false},
                        {"PDL, ring before wait, trigger at start", Trigger::at_start, true},
                        {"PDL, ring before wait, trigger after wait", Trigger::after_wait, true}};
  for (const int64_t bytes : {int64_t{4194304}, int64_t{16777216}, int64_t{52559872}}) {
    for (const Mode& mode : modes) {
      const Spread t = time_graph(stream, kRounds, [&] {
        for (int i = 0; i < kChain; ++i) {
          const uint4* slice = pool + i % (kPool / bytes) * (bytes / 16);
          launch(stream, mode.trigger != Trigger::none, sms, kThreads, kRing, stream_kernel, slice,
                 bytes / 16, out, mode.trigger, mode.fill_before_wait);
        }
      });
      const double us = t.median / kChain;
      std::printf(
          "  {\"mb\": %.2f, \"mode\": \"%s\", \"us_per_launch\": %.3f, \"min\": %.3f, \"max\": %.3f, "
          "\"tb_per_s\": %.3f}%s\n",
          static_cast<double>(bytes) / 1e6, mode.name, us, t.least / kChain, t.most / kChain,
          static_cast<double>(bytes) / us / 1e6,
          bytes == 52559872 && mode.fill_before_wait && mode.trigger == Trigger::after_wait ? "" : ",");
    }
  }
  std::printf("],\n\"X3\": [\n");
  Seen* seen;
  check(cudaMallocHost(&seen, 2 * 132 * sizeof(Seen)), "seen");
  check(cudaFuncSetAttribute(stay_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 << 10), "shared");
  for (const int kilobytes : {104, 112, 120}) {
    for (int r = 0; r < 2; ++r) {  // the second is past every first-time cost
      launch(stream, false, sms, kThreads, static_cast<size_t>(kilobytes) << 10, stay_kernel, seen, true);
      launch(stream, true, sms, kThreads, static_cast<size_t>(kilobytes) << 10, stay_kernel, seen + sms,
             false);
      check(cudaStreamSynchronize(stream), "synchronize");
    }
    uint64_t first_end = ~uint64_t{0}, first_start = 0;
    for (int i = 0; i < sms; ++i) {
      first_end = std::min(first_end, seen[i].end);
      first_start = std::max(first_start, seen[i].start);
    }
    int early = 0;
    double latest = 0;
    std::vector<int> on_sm(1024);
    for (int i = sms; i < 2 * sms; ++i) {
      if (seen[i].start >= first_end) continue;
      ++early;
      ++on_sm[seen[i].sm];
      latest =
          std::max(latest, (static_cast<double>(seen[i].start) - static_cast<double>(first_start)) / 1e3);
    }
    const long used = std::count_if(on_sm.begin(), on_sm.end(), [](int n) { return n > 0; });
    std::printf(
        "  {\"shared_kb\": %d, \"ctas\": %d, \"second_grid_up_while_first_runs\": %d, \"on_distinct_sms\": "
        "%ld, "
        "\"last_up_us_after_first_grid\": %.2f}%s\n",
        kilobytes, sms, early, used, latest, kilobytes == 120 ? "" : ",");
  }
  std::printf("],\n");
  uint32_t* counter;
  check(cudaMalloc(&counter, 4), "counter");
  constexpr int kBarriers = 1000;
  const Spread t = time_graph(stream, kRounds, [&] {
    check(cudaMemsetAsync(counter, 0, 4, stream), "memset");
    launch(stream, false, sms, kThreads, 0, barrier_kernel, counter, kBarriers);
  });
  std::printf(
      "\"X6\": {\"ctas\": %d, \"barriers\": %d, \"us_per_barrier\": %.3f, \"min\": %.3f, \"max\": %.3f}}\n",
      sms, kBarriers, t.median / kBarriers, t.least / kBarriers, t.most / kBarriers);
  return 0;
}
