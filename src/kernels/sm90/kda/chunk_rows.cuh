// What is made of each token of a chunk by itself: conv, norms, gates, decays.
#pragma once

#include "kernels/sm90/kda/chunk_shared.cuh"

namespace godwit::sm90::chunk::prep {

// A block's chunk of one head; a warp has kRows tokens of it, a lane four columns.
struct Chunk {
  const kernels::Sequence& s;
  int head;
  int32_t first;  // of the sequence's rows in this step, the warp's first token
  int live;       // tokens of the warp's that are there
};

// Four columns of the kRows rows, q, k or v by `part`, after conv and SiLU (glm5_next spec §8.2) where there
// are taps. Taps before the step come from the slot's window. Tokens that are not there repeat the sequence's
// last: their beta and log decay are zero, so nothing comes of them.
__device__ inline void load_rows(const Chunks& a, const Chunk& c, int part, float (&v)[kRows][4]) {
  const int64_t column = part * a.width() + int64_t{c.head} * kDim + threadIdx.x % 32 * 4;
  const float* from = a.raw(c.s.row) + column;
  const auto stride = static_cast<uint32_t>(a.raw.stride);
  float x[kTaps - 1 + kRows][4];
#pragma unroll
  for (int i = 0; i < kTaps - 1 + kRows; ++i) {
    const int32_t t = min(c.first - (kTaps - 1) + i, c.s.rows - 1);
    if (i >= kTaps - 1 || c.first > 0) load_four(from + uint64_t{static_cast<uint32_t>(t)} * stride, x[i]);
  }
  if (!a.taps) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) v[i][e] = x[i + kTaps - 1][e];
    }
    return;
  }
  if (c.first == 0) {
    const KdaSlot slot(a.state, c.s.slot);
#pragma unroll 1
    for (int e = 0; e < 4; ++e) {
      float past[kTaps - 1];
#pragma unroll
      for (int i = 0; i < kTaps - 1; ++i) {
        past[i] =
            c.s.first > 0 ? load(slot.window(), a.state.window_dtype, i * 3 * a.width() + column + e) : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < kTaps - 1; ++i) {
#pragma unroll
        for (int to = 0; to < 4; ++to) x[i][to] = to == e ? past[i] : x[i][to];
      }
    }
  }
  if (a.state.window_dtype == DType::bf16) {
#pragma unroll
    for (int i = 0; i < kTaps - 1 + kRows; ++i) {
      const uint32_t low = two_bf16(x[i][0], x[i][1]), high = two_bf16(x[i][2], x[i][3]);
      x[i][0] = low_half(low), x[i][1] = high_half(low), x[i][2] = low_half(high), x[i][3] = high_half(high);
    }
  }
  Four w[4];  // [column][tap, the oldest first]
#pragma unroll
  for (int e = 0; e < 4; ++e) load_four(a.taps + (column + e) * kTaps, w[e]);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float sum = w[e][3] * x[i + 3][e];
      sum = fmaf(w[e][2], x[i + 2][e], sum);
      sum = fmaf(w[e][1], x[i + 1][e], sum);
      sum = fmaf(w[e][0], x[i][e], sum);
      v[i][e] = sum * fast_sigmoid(sum);
    }
  }
}

// q or k, normalised and times `factor`.
__device__ inline void put_unit_rows(float (&v)[kRows][4], float factor, uint32_t (*to)[68]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    float sum = 0;
#pragma unroll
    for (int e = 0; e < 4; ++e) sum = fmaf(v[i][e], v[i][e], sum);
    const float by = factor * fast_rsqrt(warp_sum(sum) + kL2Eps);
#pragma unroll
    for (int e = 0; e < 4; ++e) v[i][e] *= by;
    store_four(&to[kRows * warp + i][2 * lane], v[i]);
  }
}

__device__ inline void put_values(const float (&v)[kRows][4], Record& out) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int i = 0; i < kRows; ++i)
    *reinterpret_cast<float4*>(out.values[lane / 4].v + value_at(kRows * warp + i, lane % 4 * 4)) = {
        v[i][0], v[i][1], v[i][2], v[i][3]};
}

// f of the chunk by its low-rank product, to where the sums of decays come later. Its input lies where L and
// T come.
__device__ inline void multiply_forget(const Chunks& a, int64_t first, Shared& s) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float f[kTokens / 16][2][4] = {};
  multiply_low(s.kc(), a.f_b.w, first + 16 * warp, f);
#pragma unroll
  for (int tile = 0; tile < kTokens / 16; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      *reinterpret_cast<float2*>(
          &s.g[16 * tile + i % 2 * 8 + lane / 4][16 * warp + i / 2 * 8 + 2 * (lane % 4)]) = {
          f[tile][i / 2][i % 2 * 2], f[tile][i / 2][i % 2 * 2 + 1]};
  }
}

// The log decays, summed up over the warp's rows.
__device__ inline void load_decays(const Chunks& a, const Chunk& c, Shared& s, float (&g)[kRows][4]) {
  const int lane = threadIdx.x % 32;
  const int64_t column = int64_t{c.head} * kDim + 4 * lane;
  const float rate = -kLog2E * a.a_exp[c.head];
  Four bias;
  load_four(a.dt_bias + column, bias);
#pragma unroll
  for (int e = 0; e < 4; ++e) bias[e] *= rate;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (a.f_b.w.data) {
      load_four(&s.g[kRows * (threadIdx.x / 32) + i][4 * lane], g[i]);
    } else {
      load_four(a.forget(c.s.row + min(c.first + i, c.s.rows - 1)) + column, g[i]);
    }
  }
  Four sum = {};
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float bound = i < c.live ? kLog2E * a.lower_bound : 0.0f;
#pragma unroll
    for (int e = 0; e < 4; ++e)
      g[i][e] = sum[e] += bound * fast_reciprocal(1.0f + fast_exp2(fmaf(g[i][e], rate, bias[e])));
  }
  *reinterpret_cast<float4*>(&s.total[threadIdx.x / 32][4 * lane]) = {sum[0], sum[1], sum[2], sum[3]};
}

// From here on g counts from the chunk's start. Kd, Qd and Kr go to the record, and k with decay to the end
// of its sub-block, the columns of all products off the diagonal, to shared memory.
__device__ inline void scale_rows(float (&g)[kRows][4], Shared& s, Record& out) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, d = 4 * lane;
  Four before = {}, end = {}, last = {}, rest;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    Four total;
    load_four(&s.total[w][d], total);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (w < warp) before[e] += total[e];
      if (w <= (warp | 1)) end[e] += total[e];
      last[e] += total[e];
    }
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) rest[e] = fast_exp2(last[e] - end[e]);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int r = kRows * warp + i;
    const uint2 q2 = *reinterpret_cast<const uint2*>(&s.q[r][d / 2]);
    const uint2 k2 = *reinterpret_cast<const uint2*>(&s.k[r][d / 2]);
    const float2 q01 = unpack(q2.x), q23 = unpack(q2.y), k01 = unpack(k2.x), k23 = unpack(k2.y);
    const Four q = {q01.x, q01.y, q23.x, q23.y}, k = {k01.x, k01.y, k23.x, k23.y};
    Four kd, qd, kr, kc, from_start;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      from_start[e] = before[e] + g[i][e];
      const float by = fast_exp2(from_start[e]);
      kd[e] = k[e] * by, qd[e] = q[e] * by;
      kc[e] = k[e] * fast_exp2(end[e] - from_start[e]);
      kr[e] = kc[e] * rest[e];
    }
    *reinterpret_cast<float4*>(&s.g[r][d]) = {from_start[0], from_start[1], from_start[2], from_start[3]};
    const int at = d / 64 * kTokens * 64 + swizzled(r, d % 64);
    store_four(&out.kd[0][0][0] + at, kd);
    store_four(&out.qd[0][0][0] + at, qd);
    store_four(&out.kr[0][0][0] + at, kr);
    store_four(s.kc() + at, kc);
  }
  if (warp == 0)
    *reinterpret_cast<float4*>(&out.decay[d]) = {fast_exp2(last[0]), fast_exp2(last[1]), fast_exp2(last[2]),
                                                 fast_exp2(last[3])};
}

}  // namespace godwit::sm90::chunk::prep
