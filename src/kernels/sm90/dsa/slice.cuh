// One tile of the attention of a prompt row on tensor cores: 16 heads by 32 latents of 512 values in shared
// memory, each operand rounded once. For the scores a warp has half of the latents and 128 columns, for the
// result all latents and 64 columns. Fragments are permuted as in latents.cuh.
#pragma once

#include "kernels/sm90/dsa/latents.cuh"

namespace godwit::sm90 {

constexpr int kTileTokens = 32;
constexpr int kTilePitch = kTileTokens + 8;  // of scores and weights
constexpr int kGroups = 4;                   // of columns, of the scores
constexpr int kGroupColumns = kWidth / kGroups, kGroupSteps = kGroupColumns / 16;
static_assert(kPieceWarps == 2 * kGroups && kPieceThreads * 2 == kPieceHeads * kTileTokens);

template <class Latents>
struct Slice {
  alignas(16) uint8_t latents[Latents::kStages][kTileTokens][Latents::kPitch];  // a ring of tiles
  alignas(16) float scores[kGroups][kPieceHeads][kTilePitch];                   // of each group's columns
  alignas(16) uint32_t weights[Latents::kScales][kPieceHeads][kTilePitch / 2];  // of two tokens
  float before[Latents::kScales][kPieceHeads];  // by which sums over the tiles before are multiplied
  float last[Latents::kScales][kPieceHeads];    // and sums over all
  typename Latents::Scales scales;
};

using Tile = const uint8_t*;  // [kTileTokens, kPitch]

// The group and the first token of this warp's part of the scores.
__device__ inline int score_group() {
  return static_cast<int>(threadIdx.x / 32 % kGroups);
}
__device__ inline int score_token() {
  return static_cast<int>(threadIdx.x / 32 / kGroups) * kTileTokens / 2;
}

__device__ inline uint32_t bf16_pair(float low, float high) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(low)) |
         static_cast<uint32_t>(__bfloat16_as_ushort(__float2bfloat16_rn(high))) << 16;
}
__device__ inline uint32_t f16_pair(float low, float high) {
  const __half2_raw halves = __floats2half2_rn(low, high);
  return static_cast<uint32_t>(halves.x) | static_cast<uint32_t>(halves.y) << 16;
}

// The A fragment of 16 heads by tokens 16 k …
__device__ inline void load_weights(uint32_t (&a)[4], const uint32_t (&weights)[kPieceHeads][kTilePitch / 2],
                                    int k) {
  const int lane = threadIdx.x % 32;
  load_tiles(a, weights[lane % 16] + 8 * k + lane / 16 * 4);
}

// bf16 latents: queries and weights are rounded to bf16.
struct HalfSlice {
  static constexpr int kRowBytes = HalfLatents::kRowBytes, kPitch = HalfLatents::kPitch, kStages = 3;
  static constexpr int kTiles = HalfLatents::kTiles, kScales = 1;
  struct Scales {};

  // Of [heads, kWidth] in memory, the group's columns.
  struct Query {
    uint32_t steps[kGroupSteps][4];
    __device__ Query(const float* rows, int heads) {
      const int lane = threadIdx.x % 32, g = lane / 4;
      const float* from = rows + kGroupColumns * score_group() + lane % 4 * 2;
#pragma unroll
      for (int k = 0; k < kGroupSteps; ++k) {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const int h = g + 8 * (r % 2);
          float2 q = {0, 0};
          if (h < heads) q = *reinterpret_cast<const float2*>(from + h * kWidth + 16 * k + 8 * (r / 2));
          steps[k][r] = bf16_pair(q.x, q.y);
        }
      }
    }
  };

  __device__ static void score(Slice<HalfSlice>& slice, Tile tile, const Query& query) {
    const int lane = threadIdx.x % 32, g = lane / 4, q4 = lane % 4, token = score_token();
    const uint8_t* from = tile + (token + lane % 8 + lane / 16 * 8) * kPitch +
                          2 * kGroupColumns * score_group() + lane / 8 % 2 * 16;
    float sum[2][2][4] = {};  // 8 tokens each; of even and odd steps
#pragma unroll
    for (int k = 0; k < kGroupSteps; ++k) {
      uint32_t b[4];
      load_tiles(b, from + 32 * k);
      mma_bf16(sum[0][k % 2], query.steps[k], b[0], b[1]);
      mma_bf16(sum[1][k % 2], query.steps[k], b[2], b[3]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        *reinterpret_cast<float2*>(&slice.scores[score_group()][g + 8 * h][token + 8 * n + 2 * q4]) = {
            sum[n][0][2 * h] + sum[n][1][2 * h], sum[n][0][2 * h + 1] + sum[n][1][2 * h + 1]};
      }
    }
  }

  // Weights are what they are.
  struct Units {
    __device__ float put(Slice<HalfSlice>& slice, int h, int at, const float (&p)[2], float before) {
      const uint32_t pair = bf16_pair(p[0], p[1]);
      slice.weights[0][h][at / 2] = pair;
      if (at == 0) slice.before[0][h] = before;
      return __uint_as_float(pair << 16) + __uint_as_float(pair & 0xffff0000u);
    }
    __device__ float unit() const { return 1; }
  };

  // sum[tile][j]: heads g and g + 8 (j / 2), columns 8 tile + 2 t + j % 2 of the warp's.
  __device__ static void add(const Slice<HalfSlice>& slice, Tile tile, float (&sum)[kTiles][4]) {
    const int lane = threadIdx.x % 32;
    const uint8_t* from = tile + lane % 16 * kPitch + 2 * kWarpColumns * (threadIdx.x / 32) + lane / 16 * 16;
#pragma unroll
    for (int k = 0; k < kTileTokens / 16; ++k, from += 16 * kPitch) {
      uint32_t a[4];
      load_weights(a, slice.weights[0], k);
#pragma unroll
      for (int n = 0; n < kTiles; n += 2) {
        uint32_t b[4];
        load_tiles_transposed(b, from + 16 * n);
        mma_bf16(sum[n], a, b[0], b[1]);
        mma_bf16(sum[n + 1], a, b[2], b[3]);
      }
    }
  }
  // The group of scales of this warp's columns.
  __device__ static int scale_group() {
    return 0;
  }
  __device__ static void store(float* row, const float (&sum)[kTiles][4], int h) {
    HalfLatents::store(row, sum, h);
  }
};

// fp8 latents: codes as f16, which holds them; queries, and weights times the scales of a group of columns,
// are multiplied by a power of two and rounded to f16.
struct CodedSlice {
  static constexpr int kRowBytes = CodedLatents::kRowBytes, kPitch = CodedLatents::kPitch, kStages = 5;
  static constexpr int kTiles = CodedLatents::kTiles, kScales = CodedLatents::kScales;
  static_assert(kScales == kGroups);
  struct Scales {
    float of[kScales][kTileTokens];  // of a tile, turned round
    float largest[kScales][2];       // of half a tile
  };

  struct Query {
    uint32_t steps[kGroupSteps][4];
    float unit[2];  // what a one of heads g and g + 8 stands for
    __device__ Query(const float* rows, int heads) {
      const int lane = threadIdx.x % 32, g = lane / 4;
      const float* from = rows + kGroupColumns * score_group() + lane % 4 * 4;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float4 q[kGroupSteps];
        float largest = 0;
#pragma unroll
        for (int k = 0; k < kGroupSteps; ++k) {
          q[k] = {0, 0, 0, 0};
          if (g + 8 * h < heads)
            q[k] = *reinterpret_cast<const float4*>(from + (g + 8 * h) * kWidth + 16 * k);
          largest =
              fmaxf(fmaxf(fmaxf(largest, fabsf(q[k].x)), fmaxf(fabsf(q[k].y), fabsf(q[k].z))), fabsf(q[k].w));
        }
        for (int o = 1; o < 4; o *= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, o));
        const HalfScale scale(largest);
        const float f = scale.factor();
        unit[h] = scale.unit();
#pragma unroll
        for (int k = 0; k < kGroupSteps; ++k) {
          steps[k][h] = f16_pair(q[k].x * f, q[k].y * f);
          steps[k][2 + h] = f16_pair(q[k].z * f, q[k].w * f);
        }
      }
    }
  };

  __device__ static void score(Slice<CodedSlice>& slice, Tile tile, const Query& query) {
    const int lane = threadIdx.x % 32, g = lane / 4, q4 = lane % 4, group = score_group();
    float largest = 0;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int token = score_token() + 8 * n;
      const uint8_t* from = tile + (token + lane % 8) * kPitch + kGroupColumns * group + lane / 8 * 16;
      float sum[2][4] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t b[4];  // a step each: codes 4 t … 4 t + 3 of a token
        load_tiles(b, from + half * kGroupColumns / 2);
#pragma unroll
        for (int k = 0; k < 4; ++k)
          mma_f16(sum[k % 2], query.steps[4 * half + k], widen_low(b[k]), widen_high(b[k]));
      }
      const int at = token + 2 * q4;
      const auto scale_of = [&](int i) {
        return reinterpret_cast<const float*>(tile + (at + i) * kPitch + kWidth)[group];
      };
      const float2 scales = {scale_of(0), scale_of(1)};
      largest = fmaxf(largest, fmaxf(scales.x, scales.y));
      if (g == 0) *reinterpret_cast<float2*>(&slice.scales.of[group][at]) = scales;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        *reinterpret_cast<float2*>(&slice.scores[group][g + 8 * h][at]) = {
            (sum[0][2 * h] + sum[1][2 * h]) * query.unit[h] * scales.x,
            (sum[0][2 * h + 1] + sum[1][2 * h + 1]) * query.unit[h] * scales.y};
      }
    }
    for (int o = 1; o < 4; o *= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, o));
    if (lane == 0) slice.scales.largest[group][score_token() / (kTileTokens / 2)] = largest;
  }

  // By group, the power of two that brings the largest scale so far to 2^14 … 2^15: weights times scales fit
  // f16, since no weight is above 1. A thread keeps that of one group.
  struct Units {
    HalfScale of_group = HalfScale(0);

    __device__ float put(Slice<CodedSlice>& slice, int h, int at, const float (&p)[2], float before) {
      const int own = static_cast<int>(threadIdx.x % kScales);
      const float old = of_group.unit();
      const HalfScale tile(fmaxf(slice.scales.largest[own][0], slice.scales.largest[own][1]));
      of_group.exponent = max(of_group.exponent, tile.exponent);
      if (at < 2 * kScales) slice.before[own][h] = before * (old * of_group.factor());
#pragma unroll
      for (int group = 0; group < kScales; ++group) {
        const float factor = __shfl_sync(0xffffffffu, of_group.factor(), group);
        const float2 scales = *reinterpret_cast<const float2*>(&slice.scales.of[group][at]);
        slice.weights[group][h][at / 2] = f16_pair(p[0] * (scales.x * factor), p[1] * (scales.y * factor));
      }
      return p[0] + p[1];
    }
    __device__ float unit() const {
      return of_group.unit();
    }
  };

  // sum[tile][j]: heads g and g + 8 (j / 2); of columns 16 (tile / 2) … of the warp's, column
  // 4 t + 2 (j % 2) + tile % 2.
  __device__ static void add(const Slice<CodedSlice>& slice, Tile tile, float (&sum)[kTiles][4]) {
    const int lane = threadIdx.x % 32;
    const uint8_t* from = tile + lane % 16 * kPitch + kWarpColumns * (threadIdx.x / 32) + lane / 16 * 16;
#pragma unroll
    for (int k = 0; k < kTileTokens / 16; ++k, from += 16 * kPitch) {
      uint32_t a[4];
      load_weights(a, slice.weights[scale_group()], k);
#pragma unroll
      for (int n = 0; n < kTiles; n += 4) {
        uint32_t b[4];  // codes 2 g and 2 g + 1 of tokens 2 t and 2 t + 1, of each of 16 columns and 8 tokens
        load_tiles_transposed(b, from + 8 * n);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t selector = i % 2 == 0 ? 0x4420u : 0x4431u;
          mma_f16(sum[n + i], a, widen_low(__byte_perm(b[i / 2 * 2], 0, selector)),
                  widen_low(__byte_perm(b[i / 2 * 2 + 1], 0, selector)));
        }
      }
    }
  }
  __device__ static int scale_group() {
    return threadIdx.x / 32 / CodedLatents::kWarpsOfScale;
  }
  __device__ static void store(float* row, const float (&sum)[kTiles][4], int h) {
    CodedLatents::store(row, sum, h);
  }
};

// What sixteen threads know of a head: its largest score so far, and each thread its part of the sum of the
// exponentials. Scores are exponents of two.
template <class Latents>
struct Weights {
  float largest = -INFINITY, total = 0;
  typename Latents::Units units;

  // Of a tile of `count` entries.
  __device__ void put(Slice<Latents>& slice, float scale, int count) {
    const int h = threadIdx.x / 16, at = threadIdx.x % 16 * 2;
    float2 part[kGroups];
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
      part[group] = *reinterpret_cast<const float2*>(&slice.scores[group][h][at]);
    float p[2] = {(part[0].x + part[1].x) + (part[2].x + part[3].x),
                  (part[0].y + part[1].y) + (part[2].y + part[3].y)};
    float most = largest;  // a NaN score is not hidden: it comes back in its weight
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      p[i] = at + i < count ? scale * p[i] : -INFINITY;
      most = fmaxf(most, p[i]);
    }
    for (int o = 8; o > 0; o /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, o));
    const float before = fast_exp2(largest - most);
#pragma unroll
    for (int i = 0; i < 2; ++i) p[i] = fast_exp2(p[i] - most);
    largest = most;
    total = fmaf(total, before, units.put(slice, h, at, p, before));
  }
  __device__ void finish(Slice<Latents>& slice) {
    const int h = threadIdx.x / 16, at = threadIdx.x % 16;
    for (int o = 8; o > 0; o /= 2) total += __shfl_xor_sync(0xffffffffu, total, o);
    if (at < Latents::kScales) slice.last[at][h] = units.unit() / total;
  }
};

}  // namespace godwit::sm90
