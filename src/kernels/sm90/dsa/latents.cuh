// One piece of attention on tensor cores: 16 heads by 64 latents of 512 values in shared memory. A warp has
// 64 columns of all latents: its part of the scores' sums, and of the result. Operands are permuted where the
// order of what is summed is free, so that fragments are whole words.
#pragma once

#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/dsa/parts.cuh"

namespace godwit::sm90 {

constexpr int kPieceWarps = 8, kPieceThreads = 32 * kPieceWarps;
constexpr int kPieceTokens = 64, kPieceHeads = 16;
constexpr int kWidth = 512, kWarpColumns = kWidth / kPieceWarps;
constexpr int kWarpSteps = kWarpColumns / 16;
constexpr int kScorePitch = kPieceTokens + 8;       // floats
constexpr int kWeightPitch = kPieceTokens / 4 + 2;  // fours of 16-bit values

template <class Latents>
struct Piece {
  alignas(16) uint8_t latents[kPieceTokens][Latents::kPitch];
  alignas(16) float scores[kPieceWarps][kPieceHeads][kScorePitch];  // of each warp's columns
  // Exponentials, times the scales of a group of columns where latents have them, in parts.
  alignas(16) uint2 weights[Latents::kScales][Latents::kParts][kPieceHeads][kWeightPitch];
  float unit[Latents::kScales][kPieceHeads];  // what a weight's one stands for
  float largest[kPieceHeads], total[kPieceHeads];
};

// The A fragment of 16 heads by tokens 16 k … of a part of the weights.
__device__ inline void load_weights(uint32_t (&a)[4], const uint2 (&weights)[kPieceHeads][kWeightPitch],
                                    int k) {
  const int lane = threadIdx.x % 32;
  load_tiles(a, weights[lane % 16] + 4 * k + lane / 16 * 2);
}

// bf16 latents: f32 values meet them as three bf16 parts that hold all 24 bits.
struct HalfLatents {
  static constexpr int kRowBytes = 2 * kWidth, kPitch = kRowBytes + 16;
  static constexpr int kParts = 3, kScales = 1;
  static constexpr int kTiles = kWarpColumns / 8;  // of 8 columns

  // Of [heads, kWidth] in memory, what a lane holds of its warp's columns; and that in parts.
  struct QueryRows {
    float2 values[kWarpSteps][4];
    __device__ QueryRows(const float* rows, int heads) {
      const int lane = threadIdx.x % 32, g = lane / 4;
      const float* from = rows + threadIdx.x / 32 * kWarpColumns + lane % 4 * 2;
#pragma unroll
      for (int k = 0; k < kWarpSteps; ++k) {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const int h = g + 8 * (r % 2);
          values[k][r] = {0, 0};
          if (h < heads)
            values[k][r] = *reinterpret_cast<const float2*>(from + h * kWidth + 16 * k + 8 * (r / 2));
        }
      }
    }
  };
  struct Query {
    Parts steps[kWarpSteps];
    __device__ explicit Query(const QueryRows& rows) {
#pragma unroll
      for (int k = 0; k < kWarpSteps; ++k) steps[k] = split_lane(rows.values[k]);
    }
  };

  __device__ static void score(Piece<HalfLatents>& piece, const Query& query) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q4 = lane % 4;
    const uint8_t* from =
        piece.latents[lane % 8 + lane / 16 * 8] + 2 * kWarpColumns * warp + lane / 8 % 2 * 16;
#pragma unroll 1
    for (int token = 0; token < kPieceTokens; token += 16, from += 16 * kPitch) {
      float sum[2][3][4] = {};
#pragma unroll
      for (int k = 0; k < kWarpSteps; ++k) {
        uint32_t b[4];
        load_tiles(b, from + 32 * k);
#pragma unroll
        for (int part = 0; part < 3; ++part) {
          mma_bf16(sum[0][part], query.steps[k].a[part], b[0], b[1]);
          mma_bf16(sum[1][part], query.steps[k].a[part], b[2], b[3]);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // tile i % 2, heads g + 8 (i / 2)
        const auto dot = [&](int j) {
          const auto& s = sum[i % 2];
          return s[0][i / 2 * 2 + j] + (s[1][i / 2 * 2 + j] + s[2][i / 2 * 2 + j]);
        };
        *reinterpret_cast<float2*>(&piece.scores[warp][g + i / 2 * 8][token + i % 2 * 8 + 2 * q4]) = {dot(0),
                                                                                                      dot(1)};
      }
    }
  }

  // Of four tokens from `at` on.
  __device__ static void put_weights(Piece<HalfLatents>& piece, int h, int at, float (&p)[4]) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      piece.weights[0][part][h][at / 4] = {upper_halves(p[0], p[1]), upper_halves(p[2], p[3])};
#pragma unroll
      for (int i = 0; i < 4; ++i) p[i] = rest_of(p[i]);
    }
  }

  // put(tile, j, value): heads g and g + 8 (j / 2), columns 8 tile + 2 t + j % 2 of the warp's.
  template <class Put>
  __device__ static void add(const Piece<HalfLatents>& piece, Put put) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // of the columns, for want of registers
      const uint8_t* from =
          piece.latents[lane % 16] + 2 * (kWarpColumns * warp + half * kWarpColumns / 2) + lane / 16 * 16;
      float sum[kTiles / 2][4] = {};
#pragma unroll 2
      for (int k = 0; k < kPieceTokens / 16; ++k, from += 16 * kPitch) {
        uint32_t a[kParts][4];
#pragma unroll
        for (int part = 0; part < kParts; ++part) load_weights(a[part], piece.weights[0][part], k);
#pragma unroll
        for (int tile = 0; tile < kTiles / 2; tile += 2) {
          uint32_t b[4];
          load_tiles_transposed(b, from + 16 * tile);
#pragma unroll
          for (int part = kParts - 1; part >= 0; --part) {
            mma_bf16(sum[tile], a[part], b[0], b[1]);
            mma_bf16(sum[tile + 1], a[part], b[2], b[3]);
          }
        }
      }
#pragma unroll
      for (int tile = 0; tile < kTiles / 2; ++tile) {
#pragma unroll
        for (int j = 0; j < 4; ++j) put(half * kTiles / 2 + tile, j, sum[tile][j]);
      }
    }
  }

  // This warp's columns of head g + 8 h into its row.
  __device__ static void store(float* row, const float (&sum)[kTiles][4], int h) {
    float* to = row + threadIdx.x / 32 * kWarpColumns + threadIdx.x % 4 * 2;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
      *reinterpret_cast<float2*>(to + 8 * tile) = {sum[tile][2 * h], sum[tile][2 * h + 1]};
  }
};

// x times a power of two that brings `largest` to 2^14 … 2^15, as two f16 that hold 22 bits of it and 40 of
// `largest`; unit() undoes the power.
struct HalfScale {
  uint32_t exponent;
  __device__ explicit HalfScale(float largest) { exponent = max(__float_as_uint(largest) >> 23, 15u); }
  __device__ float factor() const { return __uint_as_float((268u - exponent) << 23); }
  __device__ float unit() const { return __uint_as_float((exponent - 14u) << 23); }
};
__device__ inline uint32_t next_halves(float& first, float& second) {
  const __half2_raw halves = __floats2half2_rn(first, second);
  const float2 held = __half22float2(halves);
  first -= held.x, second -= held.y;
  return static_cast<uint32_t>(halves.x) | static_cast<uint32_t>(halves.y) << 16;
}

// fp8 latents: codes as f16, which holds them, and four scales a latent behind its codes. f32 values meet
// them as two f16 parts of a multiple.
struct CodedLatents {
  static constexpr int kRowBytes = kWidth + 16, kPitch = kRowBytes;
  static constexpr int kParts = 2, kScales = kWidth / static_cast<int>(kFp8Block);
  static constexpr int kTiles = kWarpColumns / 8;  // pairs: even and odd columns of 16
  static constexpr int kWarpsOfScale = kPieceWarps / kScales;

  struct QueryRows {
    float4 values[2][kWarpSteps];  // of heads g and g + 8
    __device__ QueryRows(const float* rows, int heads) {
      const int lane = threadIdx.x % 32, g = lane / 4;
      const float* from = rows + threadIdx.x / 32 * kWarpColumns + lane % 4 * 4;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int k = 0; k < kWarpSteps; ++k) {
          values[h][k] = {0, 0, 0, 0};
          if (g + 8 * h < heads)
            values[h][k] = *reinterpret_cast<const float4*>(from + (g + 8 * h) * kWidth + 16 * k);
        }
      }
    }
  };
  struct Query {
    uint32_t steps[kWarpSteps][kParts][4];
    float unit[2];

    __device__ explicit Query(const QueryRows& rows) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float largest = 0;
#pragma unroll
        for (int k = 0; k < kWarpSteps; ++k) {
          const float4& q = rows.values[h][k];
          largest = fmaxf(fmaxf(fmaxf(largest, fabsf(q.x)), fmaxf(fabsf(q.y), fabsf(q.z))), fabsf(q.w));
        }
        for (int o = 1; o < 4; o *= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, o));
        const HalfScale scale(largest);
        unit[h] = scale.unit();
        const float f = scale.factor();
#pragma unroll
        for (int k = 0; k < kWarpSteps; ++k) {
          const float4& q = rows.values[h][k];
          float x[4] = {q.x * f, q.y * f, q.z * f, q.w * f};
#pragma unroll
          for (int part = 0; part < kParts; ++part) {
            steps[k][part][h] = next_halves(x[0], x[1]);
            steps[k][part][2 + h] = next_halves(x[2], x[3]);
          }
        }
      }
    }
  };

  __device__ static void score(Piece<CodedLatents>& piece, const Query& query) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q4 = lane % 4;
    const uint8_t* from = piece.latents[lane % 8] + kWarpColumns * warp + lane / 8 * 16;
#pragma unroll 2
    for (int token = 0; token < kPieceTokens; token += 8, from += 8 * kPitch) {
      uint32_t b[4];  // a step each: codes 4 t … 4 t + 3 of a token
      load_tiles(b, from);
      float sum[kParts][4] = {};
#pragma unroll
      for (int k = 0; k < kWarpSteps; ++k) {
        const uint32_t low = widen_low(b[k]), high = widen_high(b[k]);
#pragma unroll
        for (int part = 0; part < kParts; ++part) mma_f16(sum[part], query.steps[k][part], low, high);
      }
      const float scales[2] = {scale_of(piece, token + 2 * q4, warp),
                               scale_of(piece, token + 2 * q4 + 1, warp)};
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const auto dot = [&](int j) {
          return (sum[0][2 * h + j] + sum[1][2 * h + j]) * query.unit[h] * scales[j];
        };
        *reinterpret_cast<float2*>(&piece.scores[warp][g + 8 * h][token + 2 * q4]) = {dot(0), dot(1)};
      }
    }
  }
  __device__ static float scale_of(const Piece<CodedLatents>& piece, int token, int warp) {
    return reinterpret_cast<const float*>(piece.latents[token] + kWidth)[warp / kWarpsOfScale];
  }

  // All 16 lanes of a head must call.
  __device__ static void put_weights(Piece<CodedLatents>& piece, int h, int at, float (&p)[4]) {
#pragma unroll 1
    for (int group = 0; group < kScales; ++group) {
      float v[4], largest = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        v[i] = p[i] * scale_of(piece, at + i, group * kWarpsOfScale);
        largest = fmaxf(largest, v[i]);
      }
      for (int o = 8; o > 0; o /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, o));
      const HalfScale scale(largest);
      if (at == 0) piece.unit[group][h] = scale.unit();
#pragma unroll
      for (int i = 0; i < 4; ++i) v[i] *= scale.factor();
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const uint32_t low = next_halves(v[0], v[1]), high = next_halves(v[2], v[3]);
        piece.weights[group][part][h][at / 4] = {low, high};
      }
    }
  }

  // put(tile, j, value): heads g and g + 8 (j / 2); of columns 16 (tile / 2) … of the warp's, column
  // 4 t + 2 (j % 2) + tile % 2.
  template <class Put>
  __device__ static void add(const Piece<CodedLatents>& piece, Put put) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4;
    const int group = warp / kWarpsOfScale;
    const float unit[2] = {piece.unit[group][g], piece.unit[group][g + 8]};
    const uint8_t* from = piece.latents[lane % 16] + kWarpColumns * warp + lane / 16 * 16;
    float sum[kTiles][4] = {};
#pragma unroll 2
    for (int k = 0; k < kPieceTokens / 16; ++k, from += 16 * kPitch) {
      uint32_t a[kParts][4];
#pragma unroll
      for (int part = 0; part < kParts; ++part) load_weights(a[part], piece.weights[group][part], k);
#pragma unroll
      for (int tile = 0; tile < kTiles; tile += 4) {
        uint32_t b[4];  // codes 2 g and 2 g + 1 of tokens 2 t and 2 t + 1, of each of 16 columns and 8 tokens
        load_tiles_transposed(b, from + 8 * tile);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t low = b[i / 2 * 2], high = b[i / 2 * 2 + 1];
          const uint32_t selector = i % 2 == 0 ? 0x4420u : 0x4431u;
          const uint32_t b0 = widen_low(__byte_perm(low, 0, selector)),
                         b1 = widen_low(__byte_perm(high, 0, selector));
#pragma unroll
          for (int part = kParts - 1; part >= 0; --part) mma_f16(sum[tile + i], a[part], b0, b1);
        }
      }
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int j = 0; j < 4; ++j) put(tile, j, sum[tile][j] * unit[j / 2]);
    }
  }

  __device__ static void store(float* row, const float (&sum)[kTiles][4], int h) {
    float* to = row + threadIdx.x / 32 * kWarpColumns + threadIdx.x % 4 * 4;
#pragma unroll
    for (int tile = 0; tile < kTiles; tile += 2) {
      *reinterpret_cast<float4*>(to + 8 * tile) = {sum[tile][2 * h], sum[tile + 1][2 * h],
                                                   sum[tile][2 * h + 1], sum[tile + 1][2 * h + 1]};
    }
  }
};

// Sixteen lanes a head: scores summed over the warps' columns, their largest, exponentials and their sum.
template <class Latents>
__device__ void weigh(Piece<Latents>& piece, float scale, int count) {
  const int h = threadIdx.x / 16, at = threadIdx.x % 16 * 4;
  float p[4] = {};
#pragma unroll
  for (int warp = 0; warp < kPieceWarps; ++warp) {
    const float4 part = *reinterpret_cast<const float4*>(&piece.scores[warp][h][at]);
    p[0] += part.x, p[1] += part.y, p[2] += part.z, p[3] += part.w;
  }
  float largest = -INFINITY, total = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    p[i] = at + i < count ? scale * p[i] : -INFINITY;
    largest = fmaxf(largest, p[i]);
  }
  for (int o = 8; o > 0; o /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, o));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    p[i] = at + i < count ? expf(p[i] - largest) : 0.0f;
    total += p[i];
  }
  for (int o = 8; o > 0; o /= 2) total += __shfl_xor_sync(0xffffffffu, total, o);
  if (at == 0) piece.largest[h] = largest, piece.total[h] = total;
  Latents::put_weights(piece, h, at, p);
}

}  // namespace godwit::sm90
