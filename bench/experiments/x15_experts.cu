// X15: routed experts of a prefill slice (kernels spec §4.5, §4.6) in five launches: plan, permute, gate+up
// with SwiGLU and quantiser in the epilogue, down with the routing weight in the epilogue, combine. Random
// codes, scales and routing; every output is compared with a plain product of the same codes in f64. Prints
// JSON.
#include <cuda_fp8.h>

#include <cmath>
#include <cstring>
#include <random>

#include "grouped.cuh"

namespace {

using namespace grouped;

constexpr float kE4m3Max = 448;

// Where each assignment goes. One block: a slice has a few hundred thousand assignments at most; which slot
// an assignment gets within its expert is left to the order of atomics, since no row depends on its
// neighbours.
struct Layout {
  const int32_t* ids;   // [T k] global expert, ascending within a row
  int64_t assignments;  // T k
  int32_t first, held;  // experts of this rank
  int32_t* slot;        // [T k] row of the padded layout, -1: of another rank
  Tile* tiles;
  int32_t* tile_count;
  int32_t together;  // row tiles of an expert are a multiple of this
};
constexpr int kMaxHeld = 512;

__global__ void __launch_bounds__(1024) plan_kernel(Layout l) {
  __shared__ int32_t count[kMaxHeld], base[kMaxHeld];
  for (int e = threadIdx.x; e < l.held; e += 1024) count[e] = 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < l.assignments; i += 1024) {
    const int32_t e = l.ids[i] - l.first;
    if (e >= 0 && e < l.held) atomicAdd(&count[e], 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t tiles = 0;
    for (int32_t e = 0; e < l.held; ++e) {
      base[e] = tiles * kTileRows;
      const int32_t of_expert =
          (count[e] + kTileRows * l.together - 1) / (kTileRows * l.together) * l.together;
      for (int32_t i = 0; i < of_expert; ++i)
        l.tiles[tiles + i] = {e, max(0, min(kTileRows, count[e] - i * kTileRows)), tiles, of_expert};
      tiles += of_expert;
      count[e] = 0;
    }
    *l.tile_count = tiles;
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < l.assignments; i += 1024) {
    const int32_t e = l.ids[i] - l.first;
    const bool mine = e >= 0 && e < l.held;
    const int32_t slot = mine ? base[e] + atomicAdd(&count[e], 1) : -1;
    l.slot[i] = slot;
  }
}

// Codes of the tokens to their slots; scales [T, K / 128] to [K / 128, rows]. A warp an assignment.
__global__ void __launch_bounds__(256)
    permute_kernel(const uint8_t* x, const float* x_scales, int64_t width, const int32_t* slot,
                   int64_t assignments, int32_t chosen, uint8_t* out, float* out_scales, int64_t rows) {
  const int64_t i = blockIdx.x * int64_t{8} + threadIdx.x / 32;
  if (i >= assignments || slot[i] < 0) return;
  const int64_t t = i / chosen, to = slot[i];
  const int lane = threadIdx.x % 32;
  for (int64_t k = lane * 16; k < width; k += 512)
    *reinterpret_cast<uint4*>(out + to * width + k) =
        __ldg(reinterpret_cast<const uint4*>(x + t * width + k));
  for (int64_t b = lane; b < width / kBlock; b += 32)
    out_scales[b * rows + to] = x_scales[t * (width / kBlock) + b];
}

__device__ inline float swiglu(float gate, float up, float limit) {
  gate = fminf(gate, limit);
  up = fmaxf(-limit, fminf(up, limit));
  float e, r;  // within 2 ulp each, and a quarter of the instructions
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(-1.4426950408889634f * gate));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + e));
  return gate * r * up;
}

// inner = quantised SwiGLU of one group of 128 columns: block 0 of the tile is gate, block 1 the same rows of
// up.
struct GateUp {
  uint8_t* inner;  // [rows, inner_width]
  float* scales;   // [inner_width / 128, rows]
  int64_t inner_width, rows;
  float limit;

  __device__ void operator()(int64_t first, int32_t valid, int32_t column, int row,
                             float (&acc)[2][64]) const {
    const int quad = threadIdx.x % 4;
#pragma unroll
    for (int lower = 0; lower < 2; ++lower) {
      float largest = 0;
#pragma unroll
      for (int j = 0; j < 16; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& v = acc[0][4 * j + 2 * lower + c];
          v = swiglu(v, acc[1][4 * j + 2 * lower + c], limit);
          largest = fmaxf(largest, fabsf(v));
        }
      }
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      const float scale = __fdiv_rn(largest, kE4m3Max);
      const int64_t to = first + row + 8 * lower;
      const bool live = row + 8 * lower < valid;
      if (live && quad == 0) scales[column * rows + to] = scale;
#pragma unroll
      for (int j = 0; j < 16; j += 4) {
        // Two codes a lane and j; four lanes turn them round so that each writes eight bytes of one j.
        uint32_t codes[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 pair{acc[0][4 * (j + i) + 2 * lower], acc[0][4 * (j + i) + 2 * lower + 1]};
          const float2 scaled =
              scale == 0 ? float2{0, 0} : float2{__fdiv_rn(pair.x, scale), __fdiv_rn(pair.y, scale)};
          codes[i] = __nv_cvt_float2_to_fp8x2(scaled, __NV_SATFINITE, __NV_E4M3);
        }
        uint32_t mine[4];
#pragma unroll
        for (int x = 0; x < 4; ++x) {
          const int give = quad ^ x;  // the lane that gets it, and the j it owns
          const uint32_t low = give & 1 ? codes[1] : codes[0], high = give & 1 ? codes[3] : codes[2];
          const uint32_t got = __shfl_xor_sync(0xffffffffu, give & 2 ? high : low, x);
          // From lane quad ^ x: columns 2 (quad ^ x) of my j.
#pragma unroll
          for (int i = 0; i < 4; ++i) mine[i] = (quad ^ x) == i ? got : mine[i];
        }
        if (live) {
          uint8_t* p = inner + to * inner_width + int64_t{column} * kBlock + 8 * (j + quad);
          *reinterpret_cast<uint2*>(p) = {mine[0] | mine[1] << 16, mine[2] | mine[3] << 16};
        }
      }
    }
  }
};

// out = product, f32.
struct Down {
  float* out;  // [rows, width]
  int64_t width;

  __device__ void operator()(int64_t first, int32_t valid, int32_t column, int row,
                             float (&acc)[2][64]) const {
    const int quad = threadIdx.x % 4;
#pragma unroll
    for (int lower = 0; lower < 2; ++lower) {
      if (row + 8 * lower >= valid) continue;
      float* p = out + (first + row + 8 * lower) * width + int64_t{column} * 2 * kBlock + 2 * quad;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int j = 0; j < 16; ++j)
          *reinterpret_cast<float2*>(p + half * kBlock + 8 * j) = {acc[half][4 * j + 2 * lower],
                                                                   acc[half][4 * j + 2 * lower + 1]};
      }
    }
  }
};

// out[t] = sum over the chosen experts held here, ascending, of weight * y. A block a token.
__global__ void __launch_bounds__(256)
    combine_kernel(const float* y, const int32_t* slot, const float* weights, int32_t chosen, int64_t width,
                   float* out) {
  const int64_t t = blockIdx.x;
  for (int64_t n = threadIdx.x * 4; n < width; n += 1024) {
    float4 sum{0, 0, 0, 0};
    for (int32_t i = 0; i < chosen; ++i) {
      const int32_t from = slot[t * chosen + i];
      if (from < 0) continue;
      const float4 v = *reinterpret_cast<const float4*>(y + from * width + n);
      const float w = weights[t * chosen + i];
      sum.x = fmaf(w, v.x, sum.x), sum.y = fmaf(w, v.y, sum.y);
      sum.z = fmaf(w, v.z, sum.z), sum.w = fmaf(w, v.w, sum.w);
    }
    *reinterpret_cast<float4*>(out + t * width + n) = sum;
  }
}

// Codes of magnitude 2^-6 to 2^3 with random signs.
__global__ void tame_kernel(uint32_t* words, int64_t count) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count;
       i += gridDim.x * int64_t{blockDim.x}) {
    const uint32_t w = words[i];
    words[i] =
        (w & 0x87878787u) | ((w >> 3 & 0x01010101u) * 0x30u + (w >> 4 & 0x01010101u) * 0x08u + 0x08080808u);
  }
}
__global__ void scales_kernel(float* scales, int64_t count, float around) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count;
       i += gridDim.x * int64_t{blockDim.x}) {
    const uint32_t w = reinterpret_cast<uint32_t*>(scales)[i];
    scales[i] = around * (0.5f + static_cast<float>(w >> 8) * 0x1p-24f);
  }
}

__device__ double widen(uint8_t code) {
  return static_cast<double>(__half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3))));
}
// Dot of one row of codes with one row of weights, one warp; complete in every lane.
__device__ double plain_dot(const uint8_t* a, const float* a_scales, int64_t a_scale_step, const uint8_t* b,
                            const float* b_scales, int64_t k) {
  double sum = 0;
  for (int64_t i = threadIdx.x % 32; i < k; i += 32)
    sum += widen(a[i]) * widen(b[i]) * a_scales[i / kBlock * a_scale_step] * b_scales[i / kBlock];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  return sum;
}

struct Weights {
  uint8_t *gate, *up, *down;                     // [E I, D], [E I, D], [E D, I]
  float *gate_scales, *up_scales, *down_scales;  // a block of 128 x 128 each
};
struct Shape {
  int64_t tokens, hidden, inner;
  int32_t experts, first, held, chosen;  // of all; of this rank
};

// The largest errors: [0] of inner relative to its group's largest value, [1] of y relative to its row's
// norm.
__global__ void __launch_bounds__(256)
    verify_kernel(Shape s, Weights w, const Tile* tiles, const int32_t* tile_count, int64_t rows,
                  const uint8_t* a, const float* a_scales, const uint8_t* inner, const float* inner_scales,
                  const float* y, float limit, int64_t step, unsigned long long* errors) {
  const int64_t task = blockIdx.x * int64_t{8} + threadIdx.x / 32;
  const int64_t inner_tasks = rows * (s.inner / step), y_tasks = rows * (s.hidden / step);
  if (task >= inner_tasks + y_tasks) return;
  const bool is_inner = task < inner_tasks;
  const int64_t of = is_inner ? task : task - inner_tasks, per_row = (is_inner ? s.inner : s.hidden) / step;
  const int64_t row = of / per_row, n = of % per_row * step + row * 7 % step;
  if (row / kTileRows >= *tile_count || row % kTileRows >= tiles[row / kTileRows].valid) return;
  const int64_t e = tiles[row / kTileRows].expert;
  double error;
  if (is_inner) {
    const int64_t r = e * s.inner + n, blocks = s.hidden / kBlock;
    const double gate = plain_dot(a + row * s.hidden, a_scales + row, rows, w.gate + r * s.hidden,
                                  w.gate_scales + r / kBlock * blocks, s.hidden);
    const double up = plain_dot(a + row * s.hidden, a_scales + row, rows, w.up + r * s.hidden,
                                w.up_scales + r / kBlock * blocks, s.hidden);
    const double g = fmin(gate, static_cast<double>(limit)),
                 u = fmax(-static_cast<double>(limit), fmin(up, static_cast<double>(limit)));
    const double want = g / (1 + exp(-g)) * u;
    const float scale = inner_scales[n / kBlock * rows + row];
    error = fabs(widen(inner[row * s.inner + n]) * scale - want) /
            (static_cast<double>(scale) * kE4m3Max + 1e-30);
  } else {
    const int64_t r = e * s.hidden + n;
    const double want = plain_dot(inner + row * s.inner, inner_scales + row, rows, w.down + r * s.inner,
                                  w.down_scales + r / kBlock * (s.inner / kBlock), s.inner);
    double norm = 0;  // of the terms, so that cancellation does not count
    for (int64_t b = threadIdx.x % 32; b < s.inner / kBlock; b += 32) {
      const double m = static_cast<double>(inner_scales[b * rows + row]) * kE4m3Max * 0.1 *
                       w.down_scales[r / kBlock * (s.inner / kBlock) + b];
      norm += m * m * kBlock;
    }
    for (int offset = 16; offset > 0; offset /= 2) norm += __shfl_xor_sync(0xffffffffu, norm, offset);
    error = fabs(y[row * s.hidden + n] - want) / (sqrt(norm) + 1e-30);
  }
  if (!(error >= 0)) error = 1e30;  // NaN
  if (threadIdx.x % 32 == 0) atomicMax(errors + (is_inner ? 0 : 1), __double_as_longlong(error));
}

CUtensorMap tensor_map(const void* data, int64_t rows, int64_t width, uint32_t box_rows) {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                           &found),
          "cuTensorMapEncodeTiled");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  CUtensorMap map;
  const cuuint64_t size[2] = {static_cast<cuuint64_t>(width), static_cast<cuuint64_t>(rows)};
  const cuuint64_t stride[1] = {static_cast<cuuint64_t>(width)};
  const cuuint32_t box[2] = {kBlock, box_rows}, step[2] = {1, 1};
  const CUresult result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void*>(data), size,
                                 stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    std::fprintf(stderr, "tensor map: %d\n", static_cast<int>(result));
    std::exit(1);
  }
  return map;
}

template <class T>
T* device(int64_t count) {
  T* p;
  check(cudaMalloc(&p, static_cast<size_t>(count) * sizeof(T)), "cudaMalloc");
  check(cudaMemset(p, 0xa5, static_cast<size_t>(count) * sizeof(T)),
        "poison");  // padding is read, never used
  return p;
}
uint8_t* codes(int64_t count) {
  auto* p = device<uint8_t>(count);
  fill_kernel<<<1024, 256>>>(reinterpret_cast<uint32_t*>(p), count / 4);
  tame_kernel<<<1024, 256>>>(reinterpret_cast<uint32_t*>(p), count / 4);
  return p;
}
float* scales(int64_t count, float around) {
  auto* p = device<float>(count);
  fill_kernel<<<1024, 256>>>(reinterpret_cast<uint32_t*>(p), count);
  scales_kernel<<<1024, 256>>>(p, count, around);
  return p;
}

void run(const char* name, const Shape& s, bool skewed, bool share_weights, bool last) {
  const int64_t assignments = s.tokens * s.chosen;
  // Uniform distinct experts; or the first ones far more often, so that counts of 0, 1 and many occur.
  std::mt19937 random(5);
  std::vector<int32_t> ids(static_cast<size_t>(assignments));
  std::vector<int32_t> order(static_cast<size_t>(s.experts));
  int64_t routed = 0;
  std::vector<int32_t> count(static_cast<size_t>(s.held));
  for (int64_t t = 0; t < s.tokens; ++t) {
    std::vector<int32_t> mine;
    while (static_cast<int32_t>(mine.size()) < s.chosen) {
      const double u = std::uniform_real_distribution<>()(random);
      const auto e = static_cast<int32_t>((skewed ? u * u * u : u) * s.experts);
      if (std::find(mine.begin(), mine.end(), e) == mine.end()) mine.push_back(e);
    }
    std::sort(mine.begin(), mine.end());
    for (int32_t i = 0; i < s.chosen; ++i) {
      ids[static_cast<size_t>(t * s.chosen + i)] = mine[static_cast<size_t>(i)];
      const int32_t local = mine[static_cast<size_t>(i)] - s.first;
      if (local >= 0 && local < s.held) ++routed, ++count[static_cast<size_t>(local)];
    }
  }
  const int32_t together = share_weights ? kCluster : 1;
  const int64_t rows = (routed + s.held * (together * kTileRows - 1) + kTileRows - 1) / kTileRows * kTileRows;

  Weights w{};
  w.gate = codes(s.held * s.inner * s.hidden), w.up = codes(s.held * s.inner * s.hidden);
  w.down = codes(s.held * s.hidden * s.inner);
  const int64_t blocks = s.held * (s.inner / kBlock) * (s.hidden / kBlock);
  w.gate_scales = scales(blocks, 0.004f), w.up_scales = scales(blocks, 0.004f),
  w.down_scales = scales(blocks, 0.004f);
  const uint8_t* x = codes(s.tokens * s.hidden);
  const float* x_scales = scales(s.tokens * (s.hidden / kBlock), 0.5f);
  auto* d_ids = device<int32_t>(assignments);
  check(cudaMemcpy(d_ids, ids.data(), ids.size() * 4, cudaMemcpyHostToDevice), "ids");
  const float* weights = scales(assignments, 0.25f);
  Layout l{d_ids,
           assignments,
           s.first,
           s.held,
           device<int32_t>(assignments),
           device<Tile>(rows / kTileRows),
           device<int32_t>(1),
           together};
  auto* a = device<uint8_t>(rows * s.hidden);
  auto* a_scales = device<float>(rows * (s.hidden / kBlock));
  auto* inner = device<uint8_t>(rows * s.inner);
  auto* inner_scales = device<float>(rows * (s.inner / kBlock));
  auto* y = device<float>(rows * s.hidden);
  auto* out = device<float>(s.tokens * s.hidden);
  auto* errors = device<unsigned long long>(2);
  check(cudaMemset(errors, 0, 16), "errors");

  const float limit = 7;
  const GateUp gate_up{inner, inner_scales, s.inner, rows, limit};
  const Down down{y, s.hidden};
  const Problem first{l.tiles,
                      l.tile_count,
                      rows,
                      a_scales,
                      {w.gate_scales, w.up_scales},
                      static_cast<int32_t>(s.inner),
                      kBlock,
                      0,
                      static_cast<int32_t>(s.hidden / kBlock),
                      static_cast<int32_t>(s.inner / kBlock)};
  const Problem second{l.tiles,
                       l.tile_count,
                       rows,
                       inner_scales,
                       {w.down_scales, w.down_scales},
                       static_cast<int32_t>(s.hidden),
                       2 * kBlock,
                       kBlock,
                       static_cast<int32_t>(s.inner / kBlock),
                       static_cast<int32_t>(s.hidden / (2 * kBlock))};
  const CUtensorMap a_map = tensor_map(a, rows, s.hidden, 64),
                    inner_map = tensor_map(inner, rows, s.inner, 64);
  const CUtensorMap gate_map = tensor_map(w.gate, s.held * s.inner, s.hidden, kBlock);
  const CUtensorMap up_map = tensor_map(w.up, s.held * s.inner, s.hidden, kBlock);
  const CUtensorMap down_map = tensor_map(w.down, s.held * s.hidden, s.inner, kBlock);
  constexpr int kShared = sizeof(Shared) + 1024;
  const auto gate_up_kernel = share_weights ? product_kernel<true, GateUp> : product_kernel<false, GateUp>;
  const auto down_kernel = share_weights ? product_kernel<true, Down> : product_kernel<false, Down>;
  check(cudaFuncSetAttribute(gate_up_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared), "shared");
  check(cudaFuncSetAttribute(down_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared), "shared");

  // As many clusters as fit at once: one more would start when the others have ended, and double the time.
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(132), config.blockDim = dim3(kThreads), config.dynamicSmemBytes = kShared;
  int clusters = 0;
  check(cudaOccupancyMaxActiveClusters(&clusters, gate_up_kernel, &config), "clusters");
  const int blocks_launched = clusters * kCluster;
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "stream");
  const auto warps = [](int64_t tasks) { return static_cast<unsigned>((tasks + 7) / 8); };
  const std::function<void()> parts[] = {
      [&] { plan_kernel<<<1, 1024, 0, stream>>>(l); },
      [&] {
        permute_kernel<<<warps(assignments), 256, 0, stream>>>(x, x_scales, s.hidden, l.slot, assignments,
                                                               s.chosen, a, a_scales, rows);
      },
      [&] {
        gate_up_kernel<<<blocks_launched, kThreads, kShared, stream>>>(first, a_map, gate_map, up_map,
                                                                       gate_up);
      },
      [&] {
        down_kernel<<<blocks_launched, kThreads, kShared, stream>>>(second, inner_map, down_map, down_map,
                                                                    down);
      },
      [&] {
        combine_kernel<<<static_cast<unsigned>(s.tokens), 256, 0, stream>>>(y, l.slot, weights, s.chosen,
                                                                            s.hidden, out);
      }};
  for (const auto& part : parts) {
    part();
    check(cudaGetLastError(), "launch");
  }
  check(cudaStreamSynchronize(stream), "run");
  const int64_t step = 32;
  verify_kernel<<<warps(rows * (s.inner / step + s.hidden / step)), 256, 0, stream>>>(
      s, w, l.tiles, l.tile_count, rows, a, a_scales, inner, inner_scales, y, limit, step, errors);
  unsigned long long bits[2];
  int32_t tile_count;
  check(cudaStreamSynchronize(stream), "verify");
  check(cudaMemcpy(bits, errors, 16, cudaMemcpyDeviceToHost), "errors");
  check(cudaMemcpy(&tile_count, l.tile_count, 4, cudaMemcpyDeviceToHost), "tiles");
  double error[2];
  std::memcpy(error, bits, 16);

  Spread times[5], all = time_graph(stream, 20, [&] {
                     for (const auto& part : parts) part();
                   });
  for (int i = 0; i < 5; ++i) times[i] = time_graph(stream, 20, parts[i]);
  const double gate_up_flop = 4.0 * static_cast<double>(routed * s.inner * s.hidden),
               down_flop = gate_up_flop / 2;
  std::printf(
      "  {\"case\": \"%s\", \"tokens\": %ld, \"experts\": %d, \"inner\": %ld, \"routed_rows\": %ld, "
      "\"tiles\": %d, \"clusters\": %d, \"shared\": \"%s\", "
      "\"least_rows\": %d, \"most_rows\": %d,\n",
      name, s.tokens, s.held, s.inner, routed, tile_count, clusters, share_weights ? "weights" : "rows",
      *std::min_element(count.begin(), count.end()), *std::max_element(count.begin(), count.end()));
  std::printf("   \"inner_error_of_group\": %.2e, \"down_error_of_row\": %.2e,\n", error[0], error[1]);
  const char* names[] = {"plan", "permute", "gate_up", "down", "combine"};
  for (int i = 0; i < 5; ++i)
    std::printf("   \"%s_us\": %.1f, \"%s_us_min\": %.1f, \"%s_us_max\": %.1f,\n", names[i], times[i].median,
                names[i], times[i].least, names[i], times[i].most);
  std::printf(
      "   \"all_us\": %.1f, \"all_us_min\": %.1f, \"all_us_max\": %.1f, \"gate_up_tflops\": %.0f, "
      "\"down_tflops\": "
      "%.0f, \"all_tflops\": %.0f}%s\n",
      all.median, all.least, all.most, gate_up_flop / times[2].median / 1e6,
      down_flop / times[3].median / 1e6, (gate_up_flop + down_flop) / all.median / 1e6, last ? "" : ",");
  std::fflush(stdout);
  for (void* p : {(void*)w.gate,
                  (void*)w.up,
                  (void*)w.down,
                  (void*)w.gate_scales,
                  (void*)w.up_scales,
                  (void*)w.down_scales,
                  (void*)x,
                  (void*)x_scales,
                  (void*)d_ids,
                  (void*)weights,
                  (void*)l.slot,
                  (void*)l.tiles,
                  (void*)l.tile_count,
                  (void*)a,
                  (void*)a_scales,
                  (void*)inner,
                  (void*)inner_scales,
                  (void*)y,
                  (void*)out,
                  (void*)errors})
    check(cudaFree(p), "free");
}

}  // namespace

int main() {
  std::printf("{\"experiment\": \"X15\", \"cases\": [\n");
  for (const bool share_weights : {false, true}) {
    run("odd counts", {300, 512, 256, 24, 3, 17, 4}, true, share_weights, false);
    run("ep4, 2048", {2048, 4096, 2048, 288, 72, 72, 8}, false, share_weights, false);
    run("ep4, 8192", {8192, 4096, 2048, 288, 72, 72, 8}, false, share_weights, false);
    run("ep4, 16384", {16384, 4096, 2048, 288, 72, 72, 8}, false, share_weights, false);
    run("ep4 skewed, 16384", {16384, 4096, 2048, 288, 72, 72, 8}, true, share_weights, false);
    run("ep1, 16384", {16384, 4096, 512, 288, 0, 288, 8}, false, share_weights, share_weights);
  }
  std::printf("]}\n");
  return 0;
}
