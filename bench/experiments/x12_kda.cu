// X12: the chunk form of KDA for prefill (kernels spec §4.4) as two kernels, parallel prep and sequential
// scan, the scan in two forms: (i) each warp holds 16 value columns and multiplies by mma.sync, 1, 2 or 4
// warps a block; (iii) a warpgroup holds 64 columns and multiplies by wgmma. Inputs are bf16 as they come
// from the conv. Every form is compared with the plain recurrence (glm5_next spec §8.4) on four kinds of
// input. Prints JSON.
#include <cmath>
#include <cstddef>

#include "kda_scan.cuh"

namespace {

using namespace kda;
// The recurrence, one token after the other; a block a head, a thread a value column.
__global__ void __launch_bounds__(kDim) recurrence_kernel(Inputs in, float* o, float* state) {
  extern __shared__ float cells[];  // [d key][d value]
  __shared__ float q[kDim], k[kDim], decay[kDim], squares[2][4];
  const int head = blockIdx.x, e = threadIdx.x;
  float* stored = state + int64_t{head} * kDim * kDim;
  for (int d = 0; d < kDim; ++d) cells[d * kDim + e] = stored[d * kDim + e];
  for (int64_t t = 0; t < in.tokens; ++t) {
    const bf16* row = in.qkv + t * 3 * in.width() + head * kDim + e;
    const float qv = __bfloat162float(row[0]), kv = __bfloat162float(row[in.width()]),
                v = __bfloat162float(row[2 * in.width()]);
    const float q_sum = warp_sum(qv * qv), k_sum = warp_sum(kv * kv);
    __syncthreads();
    if (e % 32 == 0) squares[0][e / 32] = q_sum, squares[1][e / 32] = k_sum;
    __syncthreads();
    const auto total = [&](int which) {
      return squares[which][0] + squares[which][1] + squares[which][2] + squares[which][3];
    };
    q[e] = qv / sqrtf(total(0) + 1e-6f) / sqrtf(static_cast<float>(kDim));
    k[e] = kv / sqrtf(total(1) + 1e-6f);
    const float f = __bfloat162float(in.forget[t * in.width() + head * kDim + e]);
    decay[e] = expf(kLowerBound * sigmoid(in.a_exp[head] * (f + in.dt_bias[head * kDim + e])));
    __syncthreads();
    float seen = 0;
    for (int d = 0; d < kDim; ++d) seen = fmaf(k[d], cells[d * kDim + e] *= decay[d], seen);
    const float u = sigmoid(__bfloat162float(in.beta[t * in.heads + head])) * (v - seen);
    float sum = 0;
    for (int d = 0; d < kDim; ++d)
      sum = fmaf(q[d], cells[d * kDim + e] = fmaf(k[d], u, cells[d * kDim + e]), sum);
    o[t * in.width() + head * kDim + e] = sum;
  }
  for (int d = 0; d < kDim; ++d) stored[d * kDim + e] = cells[d * kDim + e];
}

__device__ inline float uniform(uint64_t i) {
  uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<float>(x >> 40) * 0x1p-24f;
}
// About normal. `period` > 0: a value every `period` is repeated with `fresh` of new noise.
template <class T>
__global__ void noise_kernel(T* to, int64_t count, uint64_t seed, float mean, float deviation, int64_t period,
                             int64_t first, int64_t last, float fresh) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count;
       i += gridDim.x * int64_t{blockDim.x}) {
    const auto draw = [&](uint64_t at) {
      at += seed << 40;
      return (uniform(3 * at) + uniform(3 * at + 1) + uniform(3 * at + 2) - 1.5f) * 2.0f;
    };
    float v = draw(static_cast<uint64_t>(i));
    if (period > 0 && i % period >= first && i % period < last)
      v = draw(static_cast<uint64_t>(i % period) + (1u << 30)) + fresh * v;
    to[i] = static_cast<T>(mean + deviation * v);
  }
}
template <class A>
__global__ void difference_kernel(const A* a, const float* b, int64_t count, double* sums) {
  double difference = 0, norm = 0;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count;
       i += gridDim.x * int64_t{blockDim.x}) {
    const double x = static_cast<double>(static_cast<float>(a[i])), y = b[i];
    difference += (x - y) * (x - y), norm += y * y;
  }
  atomicAdd(sums, difference), atomicAdd(sums + 1, norm);
}

template <class T>
T* device(int64_t count) {
  T* p;
  check(cudaMalloc(&p, static_cast<size_t>(count) * sizeof(T)), "cudaMalloc");
  check(cudaMemset(p, 0xff, static_cast<size_t>(count) * sizeof(T)), "poison");  // NaN
  return p;
}

struct Buffers {
  int heads;
  int64_t most;
  bf16 *qkv, *forget, *beta, *o;
  float *a_exp, *dt_bias, *state, *first_state, *plain_o, *plain_state;
  Record* records;
  double* sums;

  Buffers(int h, int64_t tokens) : heads(h), most(tokens) {
    const int64_t width = int64_t{h} * kDim;
    qkv = device<bf16>(tokens * 3 * width), forget = device<bf16>(tokens * width),
    beta = device<bf16>(tokens * h);
    o = device<bf16>(tokens * width), a_exp = device<float>(h), dt_bias = device<float>(width);
    state = device<float>(width * kDim), first_state = device<float>(width * kDim),
    plain_state = device<float>(width * kDim);
    plain_o = device<float>(tokens * width), records = device<Record>((tokens + kChunk - 1) / kChunk * h);
    sums = device<double>(4);
  }
  void fill(float gate, float parallel) {
    const int64_t width = int64_t{heads} * kDim;
    noise_kernel<<<1024, 256>>>(qkv, most * 3 * width, 1, 0.0f, 1.0f, parallel > 0 ? 3 * width : 0, width,
                                2 * width, parallel);
    noise_kernel<<<1024, 256>>>(forget, most * width, 2, gate, 1.5f, 0, 0, 0, 0.0f);
    noise_kernel<<<1024, 256>>>(beta, most * heads, 3, 0.0f, 1.5f, 0, 0, 0, 0.0f);
    noise_kernel<<<1, 256>>>(a_exp, heads, 4, 1.0f, 0.2f, 0, 0, 0, 0.0f);
    noise_kernel<<<1, 256>>>(dt_bias, width, 5, 0.0f, 0.3f, 0, 0, 0, 0.0f);
    noise_kernel<<<64, 256>>>(first_state, width * kDim, 6, 0.0f, 0.1f, 0, 0, 0, 0.0f);
  }
  Inputs inputs(int64_t tokens) const { return {qkv, forget, beta, a_exp, dt_bias, tokens, heads}; }
  void reset(float* to) const {
    check(cudaMemcpy(to, first_state, int64_t{heads} * kDim * kDim * 4, cudaMemcpyDeviceToDevice), "state");
  }
};

struct Form {
  const char* name;
  int blocks_a_head, threads;
  size_t shared;
  void (*kernel)(Inputs, const Record*, Outputs);
};
template <int kWarps>
Form form(const char* name, void (*kernel)(Inputs, const Record*, Outputs)) {
  const Form f{name, 8 / kWarps, 32 * (kWarps + 1), sizeof(Ring<kWarps, 2>) + 1024, kernel};
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(f.shared)),
        "shared");
  return f;
}

}  // namespace

int main() {
  const Form forms[] = {
      form<4>("wgmma, 64 columns", scan_wgmma_kernel), form<4>("mma, 4 warps", scan_mma_kernel<4>),
      form<2>("mma, 2 warps", scan_mma_kernel<2>), form<1>("mma, 1 warp", scan_mma_kernel<1>)};
  check(cudaFuncSetAttribute(prep_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(PrepShared)),
        "shared");
  check(cudaFuncSetAttribute(recurrence_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kDim * kDim * 4),
        "shared");
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "stream");
  constexpr int kHeads = 16;
  Buffers b(kHeads, 16384);
  const int64_t width = kHeads * kDim;
  const auto prep = [&](const Inputs& in) {
    const auto blocks = static_cast<unsigned>((in.tokens + kChunk - 1) / kChunk * in.heads);
    prep_kernel<<<blocks, 256, sizeof(PrepShared), stream>>>(in, b.records);
    check(cudaGetLastError(), "prep");
  };
  const auto scan = [&](const Form& f, const Inputs& in) {
    f.kernel<<<static_cast<unsigned>(f.blocks_a_head * in.heads), static_cast<unsigned>(f.threads), f.shared,
               stream>>>(in, b.records, {b.o, b.state});
    check(cudaGetLastError(), "scan");
  };
  std::printf("{\"experiment\": \"X12\", \"heads\": %d, \"errors\": [\n", kHeads);
  struct Kind {
    const char* name;
    float gate, parallel;
  };
  const Kind kinds[] = {{"typical", 0.0f, 0.0f},
                        {"slow decay", -6.0f, 0.0f},
                        {"fast decay", 6.0f, 0.0f},
                        {"parallel keys", -6.0f, 0.05f}};
  bool first = true;
  for (const Kind& kind : kinds) {
    b.fill(kind.gate, kind.parallel);
    const Inputs in = b.inputs(2048 - 37);
    b.reset(b.plain_state);
    recurrence_kernel<<<kHeads, kDim, kDim * kDim * 4, stream>>>(in, b.plain_o, b.plain_state);
    check(cudaGetLastError(), "recurrence");
    for (const Form& f : forms) {
      check(cudaStreamSynchronize(stream), "before");
      b.reset(b.state);
      check(cudaMemset(b.o, 0xff, static_cast<size_t>(in.tokens * width) * 2), "poison");
      check(cudaMemset(b.sums, 0, 32), "sums");
      prep(in);
      scan(f, in);
      difference_kernel<<<256, 256, 0, stream>>>(b.o, b.plain_o, in.tokens * width, b.sums);
      difference_kernel<<<256, 256, 0, stream>>>(b.state, b.plain_state, width * kDim, b.sums + 2);
      check(cudaStreamSynchronize(stream), "run");
      double sums[4];
      check(cudaMemcpy(sums, b.sums, 32, cudaMemcpyDeviceToHost), "sums");
      std::printf("%s  {\"input\": \"%s\", \"scan\": \"%s\", \"o_error\": %.2e, \"state_error\": %.2e}",
                  first ? "" : ",\n", kind.name, f.name, std::sqrt(sums[0] / sums[1]),
                  std::sqrt(sums[2] / sums[3]));
      first = false;
    }
  }
  std::printf("\n], \"times\": [\n");
  b.fill(-2.0f, 0.0f);
  first = true;
  for (const int64_t tokens : {1024, 8192, 16384}) {
    const Inputs in = b.inputs(tokens);
    const Spread p = time_graph(stream, 20, [&] { prep(in); });
    std::printf("%s  {\"tokens\": %ld, \"prep_us\": %.1f, \"prep_us_min\": %.1f, \"prep_us_max\": %.1f",
                first ? "" : ",\n", tokens, p.median, p.least, p.most);
    first = false;
    for (const Form& f : forms) {
      const Spread t = time_graph(stream, 20, [&] { scan(f, in); });
      std::printf(", \"%s\": [%.1f, %.1f, %.1f]", f.name, t.median, t.least, t.most);
    }
    const Spread all = time_graph(stream, 20, [&] {
      prep(in);
      scan(forms[0], in);
    });
    std::printf(", \"prep_and_wgmma_us\": [%.1f, %.1f, %.1f]}", all.median, all.least, all.most);
  }
  std::printf("\n]}\n");
  return 0;
}
