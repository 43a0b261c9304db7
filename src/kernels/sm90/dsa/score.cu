// Scores of pooled keys (glm5_next spec §10.3): sum_h weight_h relu(q_h . key) on tensor cores, for 32 heads
// of 128. A block takes a run of tiles of one row's pools; a warp takes 32 pools of a tile and half of the
// heads. Keys of earlier steps are asked for before the launch waits for the one before it.
#include <algorithm>
#include <bit>

#include "kernels/sm90/dsa/coded.cuh"
#include "kernels/sm90/dsa/parts.cuh"
#include "kernels/sm90/dsa/pool_tiles.cuh"
#include "kernels/sm90/dsa/scores.cuh"

namespace godwit::sm90 {
namespace {

using kernels::Sequence;

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kHeads = 32, kDim = 128;
constexpr int kSteps = kDim / 16;      // products of 16 values a pool and head
constexpr int kQueryPitch = kDim + 4;  // floats

struct Score {
  Rows<const float> query;   // [T, heads dim]
  Rows<const float> weight;  // [T, heads]
  float scale;
  kernels::DsaCache cache;
  int32_t shares;
  SelectRows rows;
  Scores scores;
};

// bf16 keys: queries as three parts that hold all 24 bits.
struct HalfKeys {
  static constexpr int kStages = 3, kBytes = 2 * kDim, kPitch = kBytes + 16, kStageBytes = kTile * kPitch;
  static constexpr bool kCoded = false;
  using Query = Parts;  // A registers of a step

  static constexpr size_t kQueryBytes = 0;
  static_assert(kHeads * kQueryPitch * sizeof(float) <= kStageBytes);

  // Queries of a row into a free stage of the ring, from where a lane takes its part. All threads must call.
  __device__ static void prepare(Query (&query)[kSteps], const float* row, uint8_t* stage, uint8_t*, float*) {
    float* const raw = reinterpret_cast<float*>(stage);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int h = warp; h < kHeads; h += kWarps) {
      *reinterpret_cast<float4*>(raw + h * kQueryPitch + 4 * lane) =
          *reinterpret_cast<const float4*>(row + h * kDim + 4 * lane);
    }
    __syncthreads();
    const float* own = raw + (warp % 2 * 16 + lane / 4) * kQueryPitch + 2 * (lane % 4);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      float2 values[4];
#pragma unroll
      for (int r = 0; r < 4; ++r)
        values[r] = *reinterpret_cast<const float2*>(own + 8 * (r % 2) * kQueryPitch + 16 * k + 8 * (r / 2));
      query[k] = split_lane(values);
    }
  }
  // dot[n][i]: heads g and g + 8 (i / 2) by pools 8 n + 2 t + i % 2 of the 16 whose keys begin at `keys`.
  __device__ static void multiply(float (&dot)[2][4], const uint8_t* keys, const Query (&query)[kSteps]) {
    const int lane = threadIdx.x % 32;
    const uint8_t* key = keys + (lane % 8 + lane / 16 * 8) * kPitch + lane / 8 % 2 * 16;
    float sum[2][3][4] = {};
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      uint32_t b[4];
      load_tiles(b, key + 32 * k);
#pragma unroll
      for (int part = 0; part < 3; ++part) {
        mma_bf16(sum[0][part], query[k].a[part], b[0], b[1]);
        mma_bf16(sum[1][part], query[k].a[part], b[2], b[3]);
      }
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) dot[n][i] = sum[n][0][i] + (sum[n][1][i] + sum[n][2][i]);
    }
  }
};

// fp8 keys: codes as f16, which holds them; queries are rounded to codes too, so one product says all. Scales
// of a tile's keys lie behind them.
struct CodedKeys {
  static constexpr int kStages = 4, kBytes = kDim, kPitch = kBytes + 16, kStageBytes = kTile * (kPitch + 4);
  static constexpr bool kCoded = true;
  struct alignas(16) Query {
    uint32_t a[4];
  };

  static constexpr size_t kQueryBytes = kHeads / 16 * kSteps * 32 * sizeof(Query);

  // Eight lanes a head, each with 16 values: those of one step.
  __device__ static void prepare(Query (&own)[kSteps], const float* row, uint8_t*, uint8_t* memory,
                                 float* scales) {
    Query* const query = reinterpret_cast<Query*>(memory);
    const int l = threadIdx.x % 8;
#pragma unroll 1
    for (int h = threadIdx.x / 8; h < kHeads; h += kThreads / 8) {
      float x[16];
#pragma unroll
      for (int i = 0; i < 16; i += 4) {
        const float4 v = *reinterpret_cast<const float4*>(row + h * kDim + 16 * l + i);
        x[i] = v.x, x[i + 1] = v.y, x[i + 2] = v.z, x[i + 3] = v.w;
      }
#pragma unroll
      for (int half = 1; half < 16; half *= 2) {
#pragma unroll
        for (int i = 0; i < 16; ++i) {
          if ((i & half) != 0) continue;
          const float sum = x[i] + x[i + half], difference = x[i] - x[i + half];
          x[i] = sum, x[i + half] = difference;
        }
      }
#pragma unroll 1
      for (int lanes = 1; lanes < 8; lanes *= 2) {
        const float sign = (l & lanes) != 0 ? -1.0f : 1.0f;
#pragma unroll
        for (int i = 0; i < 16; ++i) x[i] = fmaf(sign, x[i], __shfl_xor_sync(0xffffffffu, x[i], lanes));
      }
      float largest = 0, all = 0;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        x[i] *= 1 / sqrtf(static_cast<float>(kDim));
        largest = fmaxf(largest, fabsf(x[i]));
        all += x[i];
      }
      if (isnan(all)) largest = NAN;
#pragma unroll 1
      for (int lanes = 1; lanes < 8; lanes *= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, largest, lanes);
        largest = isnan(other) ? other : isnan(largest) ? largest : fmaxf(largest, other);
      }
      const float scale = turned_scale(largest), inverse = __fdiv_rn(1.0f, scale);
      if (l == 0) scales[h] = scale;
      // A step's values may come in any order: lane (h % 8, t) of the product meets its values 4 t … 4 t + 3
      // with four codes of a key that lie side by side.
      Query* const to = query + (h / 16 * kSteps + l) * 32 + h % 8 * 4;
#pragma unroll
      for (int i = 0; i < 16; i += 2) {
        to[i / 4].a[h / 8 % 2 + i % 4] =
            widen_low(uint32_t{code_of(x[i] * inverse)} | uint32_t{code_of(x[i + 1] * inverse)} << 8);
      }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
      own[k] = query[(threadIdx.x / 32 % 2 * kSteps + k) * 32 + threadIdx.x % 32];
  }
  __device__ static void multiply(float (&dot)[2][4], const uint8_t* keys, const Query (&query)[kSteps]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const uint8_t* key = keys + (8 * n + lane % 8) * kPitch + lane / 8 * 16;
#pragma unroll
      for (int i = 0; i < 4; ++i) dot[n][i] = 0;
#pragma unroll
      for (int k = 0; k < kSteps; k += 4) {
        uint32_t b[4];
        load_tiles(b, key + 16 * k);
#pragma unroll
        for (int j = 0; j < 4; ++j) mma_f16(dot[n], query[k + j].a, widen_low(b[j]), widen_high(b[j]));
      }
    }
  }
};

template <class Keys>
constexpr size_t shared_bytes() {
  return Keys::kStages * Keys::kStageBytes + Keys::kQueryBytes;
}

template <class Keys>
__global__ void __launch_bounds__(kThreads) score_kernel(StepView step, const __grid_constant__ Score a) {
  using Tiles = PoolTiles<Keys, kThreads>;
  constexpr int kAhead = Tiles::kAhead;
  uint8_t* const memory = dynamic_shared<uint8_t>();
  __shared__ float scales[kHeads], partial[2][2][kTile];
  __shared__ int32_t ids[Tiles::kPageTiles * kPageTokens];
  let_next_start();
  // Rows of one share lie side by side: those of one sequence read the same keys.
  const unsigned row = blockIdx.x % a.rows.count, share = blockIdx.x / a.rows.count;
  const int64_t t = a.rows.first + static_cast<int>(row);
  const Sequence& s = step.sequence[step.row_sequence[t]];
  const int32_t candidates = candidates_of(a.rows, s, t);
  const unsigned all = static_cast<unsigned>(candidates + kTile - 1) / kTile, shares = a.shares;
  const int first_tile = static_cast<int>(all * share / shares);
  const int tiles = candidates <= a.rows.keep ? 0 : static_cast<int>(all * (share + 1) / shares) - first_tile;
  const int32_t begin = first_tile * kTile;
  const Tiles fetch{a.cache, a.rows.pool_shift, step.pages + s.page_offset, memory, ids, candidates};
  // Pools that no launch of this step writes, by whole pieces of scales.
  const int32_t old = min(candidates, static_cast<int32_t>(s.first >> a.rows.pool_shift)) & ~3;
#pragma unroll 1
  for (int i = 0; i < min(tiles, 2 * kAhead); ++i) fetch.look_up(i, begin + i * kTile);
  commit_copies();
  wait_copies<0>();
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q4 = lane % 4;
  const int half = warp % 2, group = warp / 2 * 32;  // this warp's heads and pools
  typename Keys::Query query[kSteps] = {};
  float weight[2] = {}, scale[2] = {};
  uint32_t* const to = a.scores.all + row * a.scores.stride;
  // The first rounds only fill the ring, before the wait.
#pragma unroll 1
  for (int i = -kAhead; i <= tiles; ++i) {
    if (i == 0) {
      wait_for_previous();
      if (tiles == 0) return;
      const float* weights = a.weight(t) + 16 * half + g;
      weight[0] = a.scale * weights[0], weight[1] = a.scale * weights[8];
      if (old < min(candidates, begin + kAhead * kTile)) {  // over the zeros of the copies
        wait_copies<0>();
        __syncthreads();
      }
#pragma unroll 1
      for (int j = 0; j < min(tiles, kAhead); ++j) {
        const int32_t first = begin + j * kTile;
        fetch.late(j, first, max(old, first), min(candidates, first + kTile));
      }
      Keys::prepare(query, a.query(t), fetch.stage(kAhead), memory + Keys::kStages * Keys::kStageBytes,
                    scales);
      if (Keys::kCoded) scale[0] = scales[16 * half + g], scale[1] = scales[16 * half + g + 8];
    }
    if (i >= 0) {
      wait_copies<kAhead - 1>();
      __syncthreads();
    }
    if (i > 0 && threadIdx.x < kTile) {  // a thread a pool of the tile before
      const int32_t p = begin + (i - 1) * kTile + static_cast<int>(threadIdx.x);
      const float* sums = partial[(i - 1) % 2][0] + threadIdx.x;
      uint32_t word = p < candidates ? order_of(sums[0] + sums[kTile]) : 0;
      to[p] = word;
#pragma unroll 1
      for (int o = 16; o > 0; o /= 2) word = max(word, __shfl_xor_sync(0xffffffffu, word, o));
      uint32_t* const best = a.scores.best + row * (a.scores.stride / kChunk) + p / kChunk;
      if (lane == 0) best[0] = word;
      // Maxima are read as vectors of two tiles'.
      const int32_t end = begin + i * kTile;
      if (lane == 0 && end >= candidates && end / kTile % 2 == 1) best[kTile / kChunk] = 0;
    }
    if (i == tiles) break;
    const int ahead = i + kAhead;
    if (ahead < tiles) {
      fetch.tile(ahead, begin + ahead * kTile, i < 0 ? old : candidates);
      if (i >= 0 && ahead + kAhead < tiles) fetch.look_up(ahead + kAhead, begin + (ahead + kAhead) * kTile);
    }
    commit_copies();
    if (i < 0) continue;
    const uint8_t* keys = fetch.stage(i);
#pragma unroll 1
    for (int at = group; at < group + 32; at += 16) {
      float dot[2][4];
      Keys::multiply(dot, keys + at * Keys::kPitch, query);
      float v[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {  // pool 8 (j / 2) + 2 t + j % 2
        float low = dot[j / 2][j % 2], high = dot[j / 2][2 + j % 2];
        if (Keys::kCoded) {  // powers of two: exact
          const float* of_keys = reinterpret_cast<const float*>(keys + kTile * Keys::kPitch) + at + 2 * q4;
          const float of_key = of_keys[j / 2 * 8 + j % 2];
          low *= scale[0] * of_key, high *= scale[1] * of_key;
        }
        v[j] = fmaf(weight[1], fmaxf(high, 0.0f), weight[0] * fmaxf(low, 0.0f));
      }
#pragma unroll 1
      for (int o = 4; o < 32; o *= 2) {
#pragma unroll
        for (int j = 0; j < 4; ++j) v[j] += __shfl_xor_sync(0xffffffffu, v[j], o);
      }
      // All lanes of a column have its sums: each of four stores one.
      const float mine = g == 0 ? v[0] : g == 1 ? v[1] : g == 2 ? v[2] : v[3];
      if (g < 4) partial[i % 2][half][at + g / 2 * 8 + 2 * q4 + g % 2] = mine;
    }
  }
}

template <class Keys>
void launch(cudaStream_t stream, const StepView& step, const Score& a) {
  static const bool sized = [] {
    check(cudaFuncSetAttribute(score_kernel<Keys>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes<Keys>())),
          "index_select");
    return true;
  }();
  static_cast<void>(sized);
  launch_dependent(stream, "index_select", blocks_for(int64_t{a.rows.count} * a.shares, 1), kThreads,
                   shared_bytes<Keys>(), score_kernel<Keys>, step, a);
}

}  // namespace

bool fits_score(const kernels::IndexSelect& a) {
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  const bool coded = a.cache.pooled_dtype == DType::f8_e4m3;
  return (coded || a.cache.pooled_dtype == DType::bf16) && a.heads == kHeads &&
         a.query.cols == kHeads * kDim && a.cache.pooled_offset % 16 == 0 && a.cache.page_stride % 16 == 0 &&
         (!coded || kPageTokens / a.pool % 4 == 0) && aligned(a.cache.base) && aligned(a.query.data) &&
         a.query.stride % 4 == 0;
}

void score(cudaStream_t stream, const StepView& step, const kernels::IndexSelect& a, const SelectRows& rows,
           const Scores& scores) {
  const bool half = a.cache.pooled_dtype == DType::bf16;
  const int32_t blocks = half ? 396 : 660;  // three an SM for registers, and five for shared memory
  const Score s{rows_of<const float>(a.query),
                rows_of<const float>(a.weight),
                a.scale,
                a.cache,
                std::max(1, blocks / rows.count),
                rows,
                scores};
  if (half) {
    launch<HalfKeys>(stream, step, s);
  } else {
    launch<CodedKeys>(stream, step, s);
  }
}

}  // namespace godwit::sm90
