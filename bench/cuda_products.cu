// The products of a decode step at the real shapes of one rank (TP4), launch by launch: a graph of launches
// over cold weights (each has its own, more than the L2 cache in all), so that every launch overlaps its
// neighbours as in a step. With any argument, each launch once and no graph, for a profiler. One program
// without the engine, for a GPU host that has nothing:
//   nvcc -std=c++20 -O3 --fmad=false -gencode arch=compute_90a,code=sm_90a -Isrc -o cuda_products \
//     bench/cuda_products.cu
//     src/kernels/sm90/{skinny/linear,linear/quantize,moe/{grouped,down,down_few,plan,router}}.cu
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "kernels/sm90/check.h"
#include "kernels/sm90/launches.h"

namespace godwit {
// What the sources need of the rest.
namespace sm90 {
void fatal(const char* op, cudaError_t error) {
  std::fprintf(stderr, "%s: %s\n", op, cudaGetErrorString(error));
  std::exit(1);
}
}  // namespace sm90
void assertion_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, expression);
  std::abort();
}

namespace {

using sm90::check;
using sm90::Product;

int multiprocessors = 0;
cudaStream_t stream;

__global__ void fill_kernel(uint32_t* words, int64_t count, uint32_t keep) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count;
       i += gridDim.x * int64_t{blockDim.x}) {
    uint64_t x = (static_cast<uint64_t>(i) + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    words[i] = static_cast<uint32_t>(x >> 32) & keep;
  }
}

// Device memory of random bytes; the exponents stay small under `keep`.
std::byte* random_bytes(int64_t bytes, uint32_t keep) {
  std::byte* p = nullptr;
  check(cudaMalloc(&p, static_cast<size_t>(bytes)), "memory");
  fill_kernel<<<1024, 256, 0, stream>>>(reinterpret_cast<uint32_t*>(p), bytes / 4, keep);
  return p;
}
constexpr uint32_t kSmallBf16 = 0xbfffbfffu, kSmallE4m3 = 0xbfbfbfbfu, kSmallF32 = 0xbfffffffu;

bool profiled = false;  // launches one by one, for a profiler

double microseconds(int launches, const std::function<void()>& record) {
  if (profiled) {
    record();
    check(cudaStreamSynchronize(stream), "launches");
    return 1;
  }
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  record();
  check(cudaStreamEndCapture(stream, &graph), "capture");
  check(cudaGraphInstantiate(&exec, graph, 0), "graph");
  cudaEvent_t start, stop;
  check(cudaEventCreate(&start), "event");
  check(cudaEventCreate(&stop), "event");
  std::vector<float> all;
  for (int r = 0; r < 14; ++r) {
    check(cudaEventRecord(start, stream), "event");
    check(cudaGraphLaunch(exec, stream), "graph");
    check(cudaEventRecord(stop, stream), "event");
    check(cudaEventSynchronize(stop), "event");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start, stop), "event");
    if (r >= 5) all.push_back(ms);
  }
  check(cudaGraphExecDestroy(exec), "graph");
  check(cudaGraphDestroy(graph), "graph");
  std::sort(all.begin(), all.end());
  return 1e3 * all[all.size() / 2] / launches;
}

struct Matrix {
  int64_t out, in;
  DType type;
  DType met = DType::f32;  // type of the rows that bf16 weights meet
  int64_t heads = 1;
};
struct Case {
  const char* name;
  std::vector<Matrix> matrices;
};
int64_t bytes_of(const Matrix& m) {
  return m.out * m.in * size_of(m.type);
}

std::byte* pool;     // of weights
int64_t pool_bytes;  // past the L2 cache
float* activations;  // [rows, K] of every product, f32 or bf16
float* results;

void time_case(const Case& c, int64_t rows) {
  int64_t bytes = 0;
  for (const Matrix& m : c.matrices) bytes += (bytes_of(m) + 255) / 256 * 256;
  const int launches = profiled ? 1 : static_cast<int>(std::clamp<int64_t>(pool_bytes / bytes, 4, 64));
  const double us = microseconds(launches, [&] {
    int64_t at = 0;
    for (int i = 0; i < launches; ++i) {
      std::vector<Product> products;
      int64_t out = 0;
      if (at + bytes > pool_bytes) at = 0;
      for (const Matrix& m : c.matrices) {
        Product p;
        p.x = make_view(activations, m.met, rows, m.in * m.heads);
        p.codes = {reinterpret_cast<uint8_t*>(activations), activations + rows * m.in, m.in};
        p.w.data = make_view(pool + at, m.type, m.out, m.in);
        p.w.scales = activations, p.w.scale_stride = (m.in + 127) / 128;
        p.heads = m.heads;
        p.out = make_view(results + out, DType::f32, rows, m.out);
        products.push_back(p);
        at += (bytes_of(m) + 255) / 256 * 256;
        out += rows * m.out;
      }
      sm90::skinny_linear(stream, products.data(), static_cast<int>(products.size()), multiprocessors);
    }
  });
  std::printf("{\"product\": \"%s\", \"rows\": %d, \"mb\": %.2f, \"us\": %.2f, \"tbs\": %.2f}\n", c.name,
              static_cast<int>(rows), bytes * 1e-6, us, bytes / us * 1e-6);
}

// A whole MoE layer: router, routed experts, the shared one. Every launch has rows of its own, so others are
// chosen.
void time_moe(int64_t rows, int64_t inner, int64_t held) {
  constexpr int64_t kHidden = 4096, kExperts = 288, kChosen = 8;
  std::vector<std::byte*> owned;
  const auto memory = [&](int64_t bytes, uint32_t keep) {
    owned.push_back(random_bytes((bytes + 255) / 256 * 256, keep));
    return owned.back();
  };
  const auto weight = [&](int64_t out, int64_t in) {
    Weight w;
    w.data = make_view(memory(out * in, kSmallE4m3), DType::f8_e4m3, out, in);
    w.scales = activations, w.scale_stride = in / 128;
    return w;
  };
  const auto ffn = [&] {
    return kernels::ExpertWeights{weight(inner, kHidden), weight(inner, kHidden), weight(kHidden, inner)};
  };
  std::vector<kernels::ExpertWeights> table;
  for (int64_t e = 0; e < held; ++e) table.push_back(ffn());
  auto* device_table = reinterpret_cast<kernels::ExpertWeights*>(memory(held * sizeof(table[0]), 0));
  check(cudaMemcpyAsync(device_table, table.data(), table.size() * sizeof(table[0]), cudaMemcpyHostToDevice,
                        stream),
        "copy");
  const kernels::ExpertWeights one = ffn();
  kernels::Ffn shared;
  shared.gate = one.gate, shared.up = one.up, shared.down = one.down;
  const int launches = profiled ? 1 : rows <= 8 ? 24 : 6;
  Weight router;
  router.data =
      make_view(memory(kExperts * kHidden * 2 * launches, kSmallBf16), DType::bf16, kExperts, kHidden);
  auto* ids = reinterpret_cast<int32_t*>(memory(launches * rows * kChosen * 4, 0));
  auto* bias = reinterpret_cast<float*>(memory(kExperts * 4, 0));
  sm90::GroupedScratch scratch;
  const int64_t entries = rows * (kChosen + 1);
  scratch.ended = reinterpret_cast<int32_t*>(memory(256, 0));
  scratch.groups = memory(sm90::group_bytes(rows, kChosen), 0);
  scratch.inner = reinterpret_cast<float*>(memory(entries * inner * 4, kSmallF32));
  scratch.inner_stride = scratch.inner_width = inner;
  scratch.y = reinterpret_cast<float*>(memory(entries * kHidden * 4, kSmallF32));
  const auto codes = [&](int64_t n, int64_t columns) {
    std::byte* p = memory(n * (columns + columns / 32), kSmallE4m3);
    return sm90::Quantized{reinterpret_cast<uint8_t*>(p), reinterpret_cast<float*>(p + n * columns), columns};
  };
  scratch.x = codes(rows, kHidden), scratch.inner_codes = codes(entries, inner);
  const double us = microseconds(launches, [&] {
    for (int l = 0; l < launches; ++l) {
      kernels::Route r;
      r.x = make_view(activations + l * rows * kHidden / 2, DType::bf16, rows, kHidden);
      r.w = router;
      r.w.data.data = static_cast<uint16_t*>(router.data.data) + l * kExperts * kHidden;
      r.bias = bias, r.scale = 2.5f;
      r.logits = make_view(results + rows * kHidden, DType::f32, rows, kExperts);
      r.ids = make_view(ids + l * rows * kChosen, DType::i32, rows, kChosen);
      r.weights = make_view(results + rows * (kHidden + kExperts), DType::f32, rows, kChosen);
      kernels::Experts a;
      a.x = r.x, a.ids = r.ids, a.weights = r.weights;
      a.experts = device_table, a.dtype = DType::f8_e4m3, a.inner = inner;
      a.expert_count = static_cast<int32_t>(held), a.limit = 10;
      const bool grouped = sm90::route_to_groups(stream, r, a, &shared, scratch, multiprocessors);
      if (!grouped) sm90::route(stream, r, multiprocessors);
      sm90::grouped_experts(stream, a, &shared, grouped, make_view(results, DType::f32, rows, kHidden),
                            scratch, multiprocessors);
    }
  });
  std::vector<int32_t> chosen(static_cast<size_t>(launches * rows * kChosen));
  check(cudaMemcpy(chosen.data(), ids, chosen.size() * 4, cudaMemcpyDeviceToHost), "copy");
  double distinct = 0;
  for (int l = 0; l < launches; ++l) {
    std::vector<bool> used(kExperts);
    for (int64_t i = 0; i < rows * kChosen; ++i) {
      const int32_t e = chosen[static_cast<size_t>(l * rows * kChosen + i)];
      if (e >= 0 && e < held && !used[static_cast<size_t>(e)])
        used[static_cast<size_t>(e)] = true, distinct += 1;
    }
  }
  distinct /= launches;
  const double mb = (distinct + 1) * 3 * inner * kHidden * 1e-6 + kExperts * kHidden * 2e-6;
  std::printf(
      "{\"product\": \"moe\", \"inner\": %d, \"rows\": %d, \"distinct\": %.1f, \"mb\": %.2f, \"us\": %.2f, "
      "\"tbs\": %.2f}\n",
      static_cast<int>(inner), static_cast<int>(rows), distinct, mb, us, mb / us);
  for (std::byte* p : owned) check(cudaFree(p), "memory");
}

}  // namespace
}  // namespace godwit

int main(int count, char**) {
  using namespace godwit;
  constexpr DType kF32 = DType::f32, kBf16 = DType::bf16, kFp8 = DType::f8_e4m3;
  profiled = count > 1;
  check(cudaStreamCreate(&stream), "stream");
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0), "device");
  pool_bytes = int64_t{1} << 30;
  pool = random_bytes(pool_bytes, kSmallBf16);
  activations = reinterpret_cast<float*>(random_bytes(64 << 20, 0x3f7f3f7fu));
  results = reinterpret_cast<float*>(random_bytes(64 << 20, kSmallF32));
  const Case cases[] = {
      {"kda_in", {{6416, 4096, kBf16, kBf16}}},
      {"kda_gates", {{2048, 128, kBf16}, {2048, 128, kBf16}}},
      {"kda_out", {{4096, 2048, kBf16, kBf16}}},
      {"dsa_front", {{1536, 4096, kFp8}, {512, 4096, kFp8}, {288, 4096, kBf16, kBf16}}},
      {"dsa_q", {{4096, 1536, kFp8}, {4096, 1536, kBf16}}},
      {"absorb_k", {{16 * 512, 256, kBf16, kF32, 16}}},
      {"absorb_v", {{16 * 256, 512, kBf16, kF32, 16}}},
      {"dsa_out", {{4096, 4096, kFp8}}},
      {"dense_up", {{3072, 4096, kFp8}, {3072, 4096, kFp8}}},
      {"dense_down", {{4096, 3072, kFp8}}},
      {"lm_head", {{38720, 4096, kBf16, kBf16}}},
  };
  for (const int64_t rows : {1, 6, 32, 64}) {
    for (const Case& c : cases) time_case(c, rows);
  }
  for (const int64_t rows : {1, 6, 8, 32, 64}) time_moe(rows, 512, 288);
  for (const int64_t rows : {1, 32}) time_moe(rows, 2048, 72);
  check(cudaDeviceSynchronize(), "end");
  return 0;
}
