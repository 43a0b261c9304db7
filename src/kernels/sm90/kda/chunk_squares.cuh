// What is made of pairs of a chunk's tokens: the scores of queries and keys, and the inverse of I + L.
#pragma once

#include "kernels/sm90/kda/chunk_shared.cuh"

namespace godwit::sm90::chunk::prep {

// Rows of k and q with decay from the start of their sub-block b, times columns of k with decay to it: L and
// A, over half of d. Off the diagonal both factors are at most 1 and go to f16; on it the columns' reach e^80
// and go to TF32.
struct Gram {
  float off[3][2][4], diagonal[2][4];
};
// Rounded to TF32, half away from zero, if x is finite; mma_tf32 ignores the bits below.
__device__ inline uint32_t round_tf32(float x) {
  return __float_as_uint(x) + 0x1000u;
}
__device__ inline void multiply_gram(Shared& s, int half, int b, Gram (&out)[2]) {
  const int lane = threadIdx.x % 32, quad = lane % 4, row = kSub * b + lane / 4;
#pragma unroll 1
  for (int step = kDim / 32 * half; step < kDim / 32 * (half + 1); ++step) {
    float2 start[2], x[2][2][2], y[2][2];  // x: [k or q][columns of d][row or row + 8]
#pragma unroll
    for (int p = 0; p < 2; ++p) {
      const int d = 16 * step + 2 * quad + 8 * p;
      start[p] = b == 0 ? float2{0, 0} : *reinterpret_cast<const float2*>(&s.g[kSub * b - 1][d]);
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        const int r = row + 8 * lower;
        const float2 g = *reinterpret_cast<const float2*>(&s.g[r][d]);
        const float2 k = unpack(s.k[r][d / 2]), q = unpack(s.q[r][d / 2]);
        const float2 by{g.x - start[p].x, g.y - start[p].y}, e{fast_exp2(by.x), fast_exp2(by.y)};
        x[0][p][lower] = {k.x * e.x, k.y * e.y};
        x[1][p][lower] = {q.x * e.x, q.y * e.y};
        y[p][lower] = {k.x * fast_exp2(-by.x), k.y * fast_exp2(-by.y)};
      }
    }
    // The order of k is free as long as both sides agree: the pairs of a lane are its two k.
#pragma unroll
    for (int p = 0; p < 2; ++p) {
#pragma unroll
      for (int of = 0; of < 2; ++of) {
        const uint32_t left[4] = {round_tf32(x[of][p][0].x), round_tf32(x[of][p][1].x),
                                  round_tf32(x[of][p][0].y), round_tf32(x[of][p][1].y)};
#pragma unroll
        for (int n = 0; n < 2; ++n)
          mma_tf32(out[of].diagonal[n], left, round_tf32(y[p][n].x), round_tf32(y[p][n].y));
      }
    }
    if (b == 0) continue;
    uint32_t left[2][4];
#pragma unroll
    for (int of = 0; of < 2; ++of) {
#pragma unroll
      for (int i = 0; i < 4; ++i) left[of][i] = pack(x[of][i / 2][i % 2].x, x[of][i / 2][i % 2].y);
    }
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      if (a >= b) continue;
      // Matrices: columns 0 to 7 and their second half of k, columns 8 to 15 and theirs.
      uint32_t m[4];
      const unsigned piece = 2 * step + lane / 8 % 2;
      load_tiles(m, s.kc() + piece / 8 * kTokens * 64 + kSub * a * 64 +
                        swizzled(lane / 16 * 8 + lane % 8, piece % 8 * 8));
      if (a + 1 < b) {
#pragma unroll
        for (int p = 0; p < 2; ++p) {
          const float2 end =
              *reinterpret_cast<const float2*>(&s.g[kSub * a + kSub - 1][16 * step + 2 * quad + 8 * p]);
          const float2 by{fast_exp2(start[p].x - end.x), fast_exp2(start[p].y - end.y)};
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            const float2 k = unpack(m[2 * n + p]);
            m[2 * n + p] = pack(k.x * by.x, k.y * by.y);
          }
        }
      }
#pragma unroll
      for (int of = 0; of < 2; ++of) {
        mma_f16(out[of].off[a][0], left[of], m[0], m[1]);
        mma_f16(out[of].off[a][1], left[of], m[2], m[3]);
      }
    }
  }
}
// The sums of both halves: a warp gives the other of its sub-block what that one stores, L or A. Nothing
// above the diagonal of blocks is stored, nor zeroed above L's diagonal: it is not read.
__device__ inline void store_gram(Shared& s, Record& record, int half, int b, const Gram (&both)[2]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  auto* const given = reinterpret_cast<float4*>(&s.q[0][0]);  // q and k are no longer needed
  const auto place = [&](int of_warp, int at) { return given + (of_warp * 8 + at) * 32 + lane; };
  const auto pick = [&](const float(&l)[4], const float(&a)[4], bool first) {
    return first ? float4{l[0], l[1], l[2], l[3]} : float4{a[0], a[1], a[2], a[3]};
  };
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    *place(warp, 6 + n) = pick(both[0].diagonal[n], both[1].diagonal[n], half == 1);
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      if (a < b) *place(warp, 2 * a + n) = pick(both[0].off[a][n], both[1].off[a][n], half == 1);
    }
  }
  __syncthreads();
  const auto store = [&](int a, int n, float4 own, int at, bool diagonal) {
    const float4 add = *place(warp ^ 1, at);
    const float sum[4] = {own.x + add.x, own.y + add.y, own.z + add.z, own.w + add.w};
#pragma unroll
    for (int lower = 0; lower < 2; ++lower) {
      const int i = kSub * b + lane / 4 + 8 * lower, j = kSub * a + 8 * n + 2 * (lane % 4);
      float x = sum[2 * lower], y = sum[2 * lower + 1];
      if (half == 0) {
        *reinterpret_cast<float2*>(&s.l[i][j]) = {s.beta[i] * x, s.beta[i] * y};
      } else {
        if (diagonal && j > i) x = 0;
        if (diagonal && j + 1 > i) y = 0;
        *reinterpret_cast<uint32_t*>(&record.a[0][0] + swizzled(i, j)) = pack(x, y);
      }
    }
  };
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    store(b, n, pick(both[0].diagonal[n], both[1].diagonal[n], half == 0), 6 + n, true);
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      if (a < b) store(a, n, pick(both[0].off[a][n], both[1].off[a][n], half == 0), 2 * a + n, false);
    }
  }
}

// A value as two of TF32 that hold 22 bits.
struct Halves {
  uint32_t high, low;
};
__device__ inline Halves halves_of(float x) {
  const uint32_t high = __float_as_uint(x) & 0xffffe000u;
  return {high, __float_as_uint(x - __uint_as_float(high))};
}
// d[kSize x 8] = a b, a[kSize x kSize] with rows of 68, b with rows of kPitch.
template <int kSize, int kPitch>
__device__ inline void multiply_square(const float* a, const float* b, float (&d)[kSize / 16][4]) {
  const int lane = threadIdx.x % 32, quad = lane % 4, row = lane / 4;
#pragma unroll
  for (int m = 0; m < kSize / 16; ++m) d[m][0] = d[m][1] = d[m][2] = d[m][3] = 0;
#pragma unroll
  for (int k = 0; k < kSize; k += 8) {
    const Halves right[2] = {halves_of(b[(k + quad) * kPitch + row]),
                             halves_of(b[(k + quad + 4) * kPitch + row])};
#pragma unroll
    for (int m = 0; m < kSize / 16; ++m) {
      uint32_t high[4], low[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Halves x = halves_of(a[(16 * m + row + i % 2 * 8) * 68 + k + quad + i / 2 * 4]);
        high[i] = x.high, low[i] = x.low;
      }
      mma_tf32(d[m], low, right[0].high, right[1].high);
      mma_tf32(d[m], high, right[0].low, right[1].low);
      mma_tf32(d[m], high, right[0].high, right[1].high);
    }
  }
}
// Columns [column, column + 8) of the block below two inverses of kSize: -T L T of the lower, the block, and
// the upper, which begins at `first`; by one warp.
template <int kSize>
__device__ inline void merge(Shared& s, int first, int column) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = lane / 4, at = lane % 4 * 2;
  const int second = first + kSize;
  float d[kSize / 16][4];
  multiply_square<kSize, 68>(&s.l[second][first], &s.t[first][first + column], d);
#pragma unroll
  for (int m = 0; m < kSize / 16; ++m) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s.p[warp][16 * m + row + i / 2 * 8][at + i % 2] = d[m][i];
  }
  __syncwarp();
  multiply_square<kSize, kPitch>(&s.t[second][second], &s.p[warp][0][0], d);
#pragma unroll
  for (int m = 0; m < kSize / 16; ++m) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      s.t[second + 16 * m + row + i / 2 * 8][first + column + at + i % 2] = -d[m][i];
  }
}

// (I + L)^-1: forward substitution on the diagonal, a thread a column, then the blocks below it, whose
// products take zeros above the diagonal.
__device__ inline void invert(Shared& s) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (warp < 4) {
    const int column = lane % kSub, base = kSub * warp;
    float x[kSub];
#pragma unroll
    for (int i = 0; i < kSub; ++i) {
      x[i] = i == column ? 1.0f : 0.0f;
#pragma unroll
      for (int j = 0; j < i; ++j) x[i] = fmaf(-s.l[base + i][base + j], x[j], x[i]);
      if (lane < kSub) {
        s.t[base + i][base + column] = x[i];
      } else if (warp % 2 == 0) {
        s.t[base + i][base + kSub + column] = 0;
      }
    }
  }
  __syncthreads();
  if (warp < 4) merge<16>(s, warp / 2 * 32, warp % 2 * 8);
  __syncthreads();
  if (warp < 4) merge<32>(s, 0, warp * 8);
  __syncthreads();
}

}  // namespace godwit::sm90::chunk::prep
