// Everything of a chunk of KDA that does not depend on the state before it (kernels spec §4.4, K1): one block
// a chunk and head, its results as a Record. Part of experiment X12.
#pragma once

#include "kda.cuh"

namespace kda {

using bf16 = __nv_bfloat16;

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLowerBound = -5;

struct Inputs {
  const bf16* qkv;       // [T, 3 H d]
  const bf16* forget;    // [T, H d]
  const bf16* beta;      // [T, H] before the sigmoid
  const float* a_exp;    // [H]
  const float* dt_bias;  // [H d]
  int64_t tokens;
  int heads;
  __device__ int64_t width() const { return int64_t{heads} * kDim; }
};

__device__ inline float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}
// Within 2 ulp, and a sixth of the instructions.
__device__ inline float sigmoid_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1.0f + exp2_approx(-kLog2E * x)));
  return y;
}
__device__ inline float warp_sum(float v) {
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}

struct alignas(16) PrepShared {
  bf16 q[kChunk][136], k[kChunk][136];
  float g[kChunk][136];  // inclusive sum of the log decays of the chunk, times log2 e
  float l[kChunk][68];   // strictly lower part of beta k k^T with decay
  float t[kChunk][68];   // (I + L)^-1
  float q_inverse[kChunk], k_inverse[kChunk], beta[kChunk];
  float p[4][kSub][20];
  // V, then the columns of k off the diagonal [2][64][64], lie where L and T come later.
  __device__ __half* kc() { return reinterpret_cast<__half*>(&l[0][0]); }
  __device__ bf16 (*v())[136] { return reinterpret_cast<bf16(*)[136]>(&l[0][0]); }
};
static_assert(sizeof(PrepShared::l) >= kChunk * 136 * sizeof(bf16));

// q, k and the log decays of a chunk, and V beside them; a thread takes eight columns of a row. All loads are
// issued before the first is used: 64 rows one after the other would be 64 times the latency of memory.
__device__ void load_chunk(const Inputs& in, PrepShared& s, int64_t first, int head) {
  constexpr int kTasks = kChunk * kDim / 8 / 256;
  const int d = threadIdx.x % 16 * 8;
  uint4 q[kTasks], k[kTasks], v[kTasks], f[kTasks];
#pragma unroll
  for (int i = 0; i < kTasks; ++i) {
    const int64_t t = first + threadIdx.x / 16 + 16 * i;
    q[i] = k[i] = v[i] = f[i] = {};
    if (t >= in.tokens) continue;
    const bf16* row = in.qkv + t * 3 * in.width() + head * kDim + d;
    q[i] = __ldg(reinterpret_cast<const uint4*>(row));
    k[i] = __ldg(reinterpret_cast<const uint4*>(row + in.width()));
    v[i] = __ldg(reinterpret_cast<const uint4*>(row + 2 * in.width()));
    f[i] = __ldg(reinterpret_cast<const uint4*>(in.forget + t * in.width() + head * kDim + d));
  }
  const float rate = in.a_exp[head];
  float bias[8];
  for (int c = 0; c < 8; ++c) bias[c] = in.dt_bias[head * kDim + d + c];
#pragma unroll
  for (int i = 0; i < kTasks; ++i) {
    const int r = threadIdx.x / 16 + 16 * i;
    const bool live = first + r < in.tokens;
    *reinterpret_cast<uint4*>(&s.q[r][d]) = q[i];
    *reinterpret_cast<uint4*>(&s.k[r][d]) = k[i];
    *reinterpret_cast<uint4*>(&s.v()[r][d]) = v[i];
    float q_sum = 0, k_sum = 0, g[8];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const auto pair = [c](const uint4& x) {
        return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162*>(&x)[c]);
      };
      const float2 a = pair(q[i]), b = pair(k[i]), z = pair(f[i]);
      q_sum += a.x * a.x + a.y * a.y, k_sum += b.x * b.x + b.y * b.y;
      g[2 * c] = kLog2E * kLowerBound * sigmoid_approx(rate * (z.x + bias[2 * c]));
      g[2 * c + 1] = kLog2E * kLowerBound * sigmoid_approx(rate * (z.y + bias[2 * c + 1]));
    }
    if (!live) {
      for (float& x : g) x = 0;
    }
    *reinterpret_cast<float4*>(&s.g[r][d]) = {g[0], g[1], g[2], g[3]};
    *reinterpret_cast<float4*>(&s.g[r][d + 4]) = {g[4], g[5], g[6], g[7]};
    for (int offset = 8; offset > 0; offset /= 2) {
      q_sum += __shfl_xor_sync(0xffffffffu, q_sum, offset);
      k_sum += __shfl_xor_sync(0xffffffffu, k_sum, offset);
    }
    if (threadIdx.x % 16 != 0) continue;
    s.q_inverse[r] = rsqrtf(q_sum + 1e-6f) * rsqrtf(static_cast<float>(kDim));
    s.k_inverse[r] = rsqrtf(k_sum + 1e-6f);
    s.beta[r] = live ? sigmoid(__bfloat162float(in.beta[(first + r) * in.heads + head])) : 0.0f;
  }
}

// Threads 0 to 127: the sums of the log decays, token after token. The others: V, transposed.
__device__ void turn_columns(PrepShared& s, Record& out) {
  const int column = threadIdx.x % kDim;
  if (threadIdx.x < kDim) {
    float sum = 0;
    for (int r = 0; r < kChunk; r += 16) {
      float g[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) g[i] = s.g[r + i][column];
#pragma unroll
      for (int i = 0; i < 16; ++i) s.g[r + i][column] = sum += g[i];
    }
    return;
  }
  for (int r = 0; r < kChunk; r += 8) {
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = __bfloat162float(s.v()[r + i][column]);
    *reinterpret_cast<uint4*>(&out.v[0][0] + swizzled(column, r)) = {pack(v[0], v[1]), pack(v[2], v[3]),
                                                                     pack(v[4], v[5]), pack(v[6], v[7])};
  }
}

// Kd, Qd and Kr to the record, and k with decay to the end of its sub-block, the columns of all products off
// the diagonal. A thread takes eight columns of a row.
__device__ void scale_rows(PrepShared& s, Record& out) {
  for (int task = threadIdx.x; task < kChunk * kDim / 8; task += 256) {
    const int r = task / 16, d = task % 16 * 8, end = r / kSub * kSub + kSub - 1;
    const uint4 q_raw = *reinterpret_cast<const uint4*>(&s.q[r][d]),
                k_raw = *reinterpret_cast<const uint4*>(&s.k[r][d]);
    float kd[8], qd[8], kr[8], kc[8];
#pragma unroll
    for (int i = 0; i < 8; i += 4) {
      const float4 g = *reinterpret_cast<const float4*>(&s.g[r][d + i]);
      const float4 e = *reinterpret_cast<const float4*>(&s.g[end][d + i]);
      const float4 l = *reinterpret_cast<const float4*>(&s.g[kChunk - 1][d + i]);
      const float g4[4] = {g.x, g.y, g.z, g.w}, e4[4] = {e.x, e.y, e.z, e.w}, l4[4] = {l.x, l.y, l.z, l.w};
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const auto value = [at = i + c](const uint4& v) {
          const float2 pair = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162*>(&v)[at / 2]);
          return at % 2 == 0 ? pair.x : pair.y;
        };
        const float k = value(k_raw) * s.k_inverse[r], from_start = exp2_approx(g4[c]);
        kd[i + c] = k * from_start;
        qd[i + c] = value(q_raw) * s.q_inverse[r] * from_start;
        kr[i + c] = k * exp2_approx(l4[c] - g4[c]);
        kc[i + c] = k * exp2_approx(e4[c] - g4[c]);
      }
    }
    const int at = d / 64 * kChunk * 64 + swizzled(r, d % 64);
    const auto put = [at](__half* to, const float* v) {
      *reinterpret_cast<uint4*>(to + at) = {pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]),
                                            pack(v[6], v[7])};
    };
    put(&out.kd[0][0][0], kd), put(&out.qd[0][0][0], qd), put(&out.kr[0][0][0], kr), put(s.kc(), kc);
  }
  if (threadIdx.x < kDim) out.decay[threadIdx.x] = exp2_approx(s.g[kChunk - 1][threadIdx.x]);
}

// Rows of k or q with decay from the start of their sub-block b, times columns of k with decay to it: L
// (keys) or A. Off the diagonal both factors are at most 1 and go to f16; on it the columns' reach e^80 and
// go to TF32.
struct Gram {
  float off[3][2][4], diagonal[2][4];
};
__device__ void gram(PrepShared& s, bool keys, int b, Gram& out) {
  const int lane = threadIdx.x % 32, quad = lane % 4, row = kSub * b + lane / 4;
  const bf16(*rows)[136] = keys ? s.k : s.q;
  const float* inverse = keys ? s.k_inverse : s.q_inverse;
  const float row_inverse[2] = {inverse[row], inverse[row + 8]};
  const float column_inverse[2] = {s.k_inverse[row],
                                   s.k_inverse[row + 8]};  // the diagonal's columns are rows of k
  out = {};
  for (int step = 0; step < kDim / 16; ++step) {
    float2 start[2], x[2][2], y[2][2];  // [columns of d][row or row + 8]
#pragma unroll
    for (int p = 0; p < 2; ++p) {
      const int d = 16 * step + 2 * quad + 8 * p;
      start[p] = b == 0 ? float2{0, 0} : *reinterpret_cast<const float2*>(&s.g[kSub * b - 1][d]);
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        const int r = row + 8 * lower;
        const float2 g = *reinterpret_cast<const float2*>(&s.g[r][d]);
        const float2 v = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&rows[r][d]));
        const float2 k = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&s.k[r][d]));
        const float2 by = {g.x - start[p].x, g.y - start[p].y};
        x[p][lower] = {v.x * row_inverse[lower] * exp2_approx(by.x),
                       v.y * row_inverse[lower] * exp2_approx(by.y)};
        y[p][lower] = {k.x * column_inverse[lower] * exp2_approx(-by.x),
                       k.y * column_inverse[lower] * exp2_approx(-by.y)};
      }
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      // The order of k is free as long as both sides agree: the pairs of a lane are its two k.
#pragma unroll
      for (int p = 0; p < 2; ++p)
        mma_tf32(out.diagonal[n], x[p][0].x, x[p][1].x, x[p][0].y, x[p][1].y, y[p][n].x, y[p][n].y);
    }
    if (b == 0) continue;
    const uint32_t left[4] = {pack(x[0][0].x, x[0][0].y), pack(x[0][1].x, x[0][1].y),
                              pack(x[1][0].x, x[1][0].y), pack(x[1][1].x, x[1][1].y)};
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      if (a >= b) continue;
      // Matrices: columns 0 to 7 and their second half of k, columns 8 to 15 and theirs.
      uint32_t m[4];
      const int piece = 2 * step + lane / 8 % 2;
      load_matrices(
          m, s.kc() + piece / 8 * kChunk * 64 + swizzled(kSub * a + lane / 16 * 8 + lane % 8, piece % 8 * 8));
      if (a + 1 < b) {
#pragma unroll
        for (int p = 0; p < 2; ++p) {
          const float2 end =
              *reinterpret_cast<const float2*>(&s.g[kSub * a + kSub - 1][16 * step + 2 * quad + 8 * p]);
          const __half2 by =
              __floats2half2_rn(exp2_approx(start[p].x - end.x), exp2_approx(start[p].y - end.y));
          for (int n = 0; n < 2; ++n) {
            __half2& h = reinterpret_cast<__half2&>(m[2 * n + p]);
            h = __hmul2(h, by);
          }
        }
      }
      mma_f16(out.off[a][0], left, m[0], m[1]);
      mma_f16(out.off[a][1], left, m[2], m[3]);
    }
  }
}
__device__ void store_gram(PrepShared& s, Record& record, bool keys, int b, const Gram& product) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int a = 0; a < 4; ++a) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        const int i = kSub * b + lane / 4 + 8 * lower, j = kSub * a + 8 * n + 2 * (lane % 4);
        float v[2];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const float x = a < 3 && a < b ? product.off[a < 3 ? a : 0][n][2 * lower + c]
                                         : product.diagonal[n][2 * lower + c];
          v[c] = a < b || (a == b && (keys ? j + c < i : j + c <= i)) ? x : 0.0f;
        }
        if (keys) {
          s.l[i][j] = s.beta[i] * v[0], s.l[i][j + 1] = s.beta[i] * v[1];
        } else {
          *reinterpret_cast<uint32_t*>(&record.a[0][0] + swizzled(i, j)) = pack(v[0], v[1]);
        }
      }
    }
  }
}

// T_ba = -T_bb sum over c of L_bc T_ca, by one warp.
__device__ void merge(PrepShared& s, int warp, int b, int a) {
  const int lane = threadIdx.x % 32, r = lane / 2, first = lane % 2 * 8;
  float sum[8] = {};
  for (int k = kSub * a; k < kSub * b; ++k) {
    const float l = s.l[kSub * b + r][k];
    for (int c = 0; c < 8; ++c) sum[c] = fmaf(l, s.t[k][kSub * a + first + c], sum[c]);
  }
  for (int c = 0; c < 8; ++c) s.p[warp][r][first + c] = sum[c], sum[c] = 0;
  __syncwarp();
  for (int k = 0; k < kSub; ++k) {
    const float t = s.t[kSub * b + r][kSub * b + k];
    for (int c = 0; c < 8; ++c) sum[c] = fmaf(t, s.p[warp][k][first + c], sum[c]);
  }
  for (int c = 0; c < 8; ++c) s.t[kSub * b + r][kSub * a + first + c] = -sum[c];
  __syncwarp();
}

// (I + L)^-1: forward substitution on the diagonal, a thread a column, then the blocks below it.
__device__ void invert(PrepShared& s) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (warp < 4) {
    const int column = lane % kSub, base = kSub * warp;
    float x[kSub];
#pragma unroll
    for (int i = 0; i < kSub; ++i) {
      x[i] = i == column ? 1.0f : 0.0f;
#pragma unroll
      for (int j = 0; j < i; ++j) x[i] = fmaf(-s.l[base + i][base + j], x[j], x[i]);
      if (lane < kSub) s.t[base + i][base + column] = x[i];
    }
  }
  for (int distance = 1; distance < 4; ++distance) {
    __syncthreads();
    if (warp + distance < 4) merge(s, warp, warp + distance, warp);
  }
  __syncthreads();
}

__global__ void __launch_bounds__(256, 2) prep_kernel(Inputs in, Record* records) {
  extern __shared__ uint8_t raw[];
  PrepShared& s = *reinterpret_cast<PrepShared*>(raw);
  const int head = blockIdx.x % in.heads;
  const int64_t first = int64_t{blockIdx.x} / in.heads * kChunk;
  Record& out = records[blockIdx.x];
  load_chunk(in, s, first, head);
  __syncthreads();
  turn_columns(s, out);
  __syncthreads();
  scale_rows(s, out);
  __syncthreads();
  const int warp = threadIdx.x / 32;
  Gram product;
  gram(s, warp % 2 == 0, warp / 2, product);
  __syncthreads();  // the columns of k lay where L comes
  store_gram(s, out, warp % 2 == 0, warp / 2, product);
  __syncthreads();
  invert(s);
  for (int task = threadIdx.x; task < kChunk * kChunk / 8; task += 256) {
    const int i = task / 8, j = task % 8 * 8;
    float v[8];
    for (int c = 0; c < 8; ++c) v[c] = j / kSub <= i / kSub ? -s.t[i][j + c] * s.beta[j + c] : 0.0f;
    *reinterpret_cast<uint4*>(&out.t[0][0] + swizzled(i, j)) = {pack(v[0], v[1]), pack(v[2], v[3]),
                                                                pack(v[4], v[5]), pack(v[6], v[7])};
  }
}

}  // namespace kda
