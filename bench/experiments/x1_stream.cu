// X1: the best read-only stream rate per kernel style, cold. Each launch reads one slice of a pool past the
// L2 cache and sums its words; a graph of at least 20 launches and 512 MB rotates through the slices. The
// sums of all styles must agree.
#include "common.cuh"

namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;

__device__ void add_up(uint32_t sum, uint32_t* out) {
  for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
}
__device__ uint32_t words_of(uint4 v) {
  return v.x + v.y + v.z + v.w;
}

// Direct 16-byte loads into registers, kLoads in flight a thread.
template <int kLoads>
__global__ void __launch_bounds__(kThreads) direct_kernel(const uint4* data, int64_t count, uint32_t* out) {
  uint32_t sum = 0;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count; i += kLoads * step) {
    uint4 v[kLoads];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      v[j] = uint4{0, 0, 0, 0};
      if (i + j * step < count) {
        asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(v[j].x), "=r"(v[j].y), "=r"(v[j].z), "=r"(v[j].w)
                     : "l"(data + i + j * step));
      }
    }
#pragma unroll
    for (int j = 0; j < kLoads; ++j) sum += words_of(v[j]);
  }
  add_up(sum, out);
}

constexpr int kStageVectors = 128;  // 2 KB a stage of a warp

// cp.async into rings private to a warp. Stage s of the data belongs to warp s mod all warps.
template <int kStages>
__global__ void __launch_bounds__(kThreads) ring_kernel(const uint4* data, int64_t count, uint32_t* out) {
  extern __shared__ uint4 memory[];
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
  uint32_t sum = 0;
  int slot = 0;
  for (int64_t s = warp; s < stages; s += warps) {
    fill(s + (kStages - 1) * warps, (slot + kStages - 1) % kStages);
    wait_copies<kStages - 1>();
    __syncwarp();
    for (int j = 0; j < kStageVectors / 32; ++j) sum += words_of(ring[slot * kStageVectors + j * 32 + lane]);
    __syncwarp();
    slot = (slot + 1) % kStages;
  }
  add_up(sum, out);
}

// cp.async.bulk: one lane of a warp asks for a stage, an mbarrier tells when it is there.
template <int kStages>
__global__ void __launch_bounds__(kThreads) bulk_kernel(const uint4* data, int64_t count, uint32_t* out) {
  extern __shared__ uint4 memory[];
  __shared__ uint64_t barriers[kWarps][kStages];
  const int lane = threadIdx.x % 32;
  uint4* ring = memory + (threadIdx.x / 32) * kStages * kStageVectors;
  uint64_t* arrived = barriers[threadIdx.x / 32];
  const int64_t warp = blockIdx.x * int64_t{kWarps} + threadIdx.x / 32, warps = int64_t{gridDim.x} * kWarps;
  const int64_t stages = count / kStageVectors;
  if (lane == 0) {
    for (int k = 0; k < kStages; ++k) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(arrived + k)) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncwarp();
  const auto fill = [&](int64_t s, int slot) {
    if (s >= stages || lane != 0) return;
    const uint32_t barrier = shared_address(arrived + slot);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "r"(kStageVectors * 16)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(ring + slot * kStageVectors)),
        "l"(data + s * kStageVectors), "r"(kStageVectors * 16), "r"(barrier)
        : "memory");
  };
  for (int k = 0; k < kStages - 1; ++k) fill(warp + k * warps, k);
  uint32_t sum = 0;
  int slot = 0;
  uint32_t parity = 0;
  for (int64_t s = warp; s < stages; s += warps) {
    fill(s + (kStages - 1) * warps, (slot + kStages - 1) % kStages);
    asm volatile(
        "{\n.reg .pred done;\nagain:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n}\n" ::"r"(shared_address(arrived + slot)),
        "r"(parity)
        : "memory");
    for (int j = 0; j < kStageVectors / 32; ++j) sum += words_of(ring[slot * kStageVectors + j * 32 + lane]);
    __syncwarp();
    if (++slot == kStages) slot = 0, parity ^= 1;
  }
  add_up(sum, out);
}

}  // namespace

int main() {
  constexpr int64_t kPool = int64_t{1536} << 20;
  constexpr int kRounds = 20;
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "stream");
  uint4* pool;
  uint32_t* sum;
  check(cudaMalloc(&pool, kPool), "pool");
  check(cudaMalloc(&sum, 4), "sum");
  fill_kernel<<<1024, 256, 0, stream>>>(reinterpret_cast<uint32_t*>(pool), kPool / 4);
  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0), "attribute");

  constexpr int kFew = 5, kMany = 12;  // stages: 80 and 192 KB an SM in flight
  constexpr size_t kFewBytes = kFew * kWarps * kStageVectors * 16,
                   kManyBytes = kMany * kWarps * kStageVectors * 16;
  struct Style {
    const char* name;
    int per_sm;
    size_t shared;
    void (*kernel)(const uint4*, int64_t, uint32_t*);
  };
  const Style styles[] = {
      {"direct, 8 loads, 2 CTAs/SM", 2, 0, direct_kernel<8>},
      {"direct, 8 loads, 4 CTAs/SM", 4, 0, direct_kernel<8>},
      {"direct, 16 loads, 2 CTAs/SM", 2, 0, direct_kernel<16>},
      {"cp.async ring, 5 x 2 KB a warp", 1, kFewBytes, ring_kernel<kFew>},
      {"cp.async ring, 12 x 2 KB a warp", 1, kManyBytes, ring_kernel<kMany>},
      {"bulk ring, 5 x 2 KB a warp", 1, kFewBytes, bulk_kernel<kFew>},
      {"bulk ring, 12 x 2 KB a warp", 1, kManyBytes, bulk_kernel<kMany>},
  };
  std::printf("{\"experiment\": \"X1\", \"graph_replays\": %d, \"rows\": [\n", kRounds);
  bool first = true;
  for (const double megabytes : {4.194304, 8.388608, 16.777216, 52.559872, 317.194240}) {
    const int64_t bytes = static_cast<int64_t>(megabytes * 1e6) / 2048 * 2048;
    const int64_t slices = kPool / bytes;
    const int64_t launches = std::max<int64_t>(20, (int64_t{512} << 20) / bytes);
    uint32_t expected = 0;
    for (const Style& style : styles) {
      check(cudaFuncSetAttribute(style.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(style.shared)),
            "shared");
      check(cudaMemsetAsync(sum, 0, 4, stream), "memset");
      launch(stream, false, sms * style.per_sm, kThreads, style.shared, style.kernel, pool, bytes / 16, sum);
      uint32_t got = 0;
      check(cudaMemcpyAsync(&got, sum, 4, cudaMemcpyDeviceToHost, stream), "copy");
      check(cudaStreamSynchronize(stream), "synchronize");
      if (&style == styles) expected = got;
      if (got != expected) {
        std::fprintf(stderr, "%s: wrong sum\n", style.name);
        return 1;
      }
      int64_t next = 0;
      const Spread t = time_graph(stream, kRounds, [&] {
        for (int64_t i = 0; i < launches; ++i, ++next) {
          const uint4* slice = pool + next % slices * (bytes / 16);
          launch(stream, false, sms * style.per_sm, kThreads, style.shared, style.kernel, slice, bytes / 16,
                 sum);
        }
      });
      const double us = t.median / static_cast<double>(launches);
      std::printf(
          "%s  {\"style\": \"%s\", \"mb\": %.2f, \"us\": %.2f, \"us_min\": %.2f, \"us_max\": %.2f, "
          "\"tb_per_s\": %.3f}",
          first ? "" : ",\n", style.name, megabytes, us, t.least / static_cast<double>(launches),
          t.most / static_cast<double>(launches), static_cast<double>(bytes) / us / 1e6);
      first = false;
    }
  }
  std::printf("\n]}\n");
  return 0;
}
