// Everything of a chunk that does not depend on the state before it: a block a chunk and head.
#include "kernels/sm90/kda/chunk.cuh"

namespace godwit::sm90 {
namespace {

using namespace chunk;

constexpr int kThreads = 256;
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kL2Eps = 1e-6f;  // added to the sum of squares (trap T7)

struct alignas(16) Shared {
  uint32_t q[kTokens][68],
      k[kTokens][68];     // two f16 each, normalised; 68: rows do not start in the same bank
  float g[kTokens][136];  // log decays times log2 e, then their sums from the chunk's start
  float l[kTokens][68];   // strictly lower part of beta k k^T with decay
  float t[kTokens][68];   // (I + L)^-1
  float beta[kTokens];
  float p[4][kSub][20];
  // The columns of k off the diagonal, [2][64][64] f16, lie where L comes later.
  __device__ uint16_t* kc() { return reinterpret_cast<uint16_t*>(&l[0][0]); }
};
static_assert(sizeof(Shared::l) >= 2 * kTokens * 64 * sizeof(uint16_t));

struct Place {
  int64_t row;   // of the step, of the chunk's first token
  int32_t live;  // tokens that are there; 0: no chunk lies here
};
__device__ Place find(const StepView& step, int32_t place) {
  int32_t low = step.decode_sequences, high = step.sequences - 1;
  while (low < high) {  // the last sequence that begins at or before the place
    const int32_t middle = (low + high + 1) / 2;
    if (first_place(step, middle) <= place) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const kernels::Sequence& s = step.sequence[low];
  const int32_t first = (place - first_place(step, low)) * kTokens;
  return {int64_t{s.row} + first, max(0, min(kTokens, s.rows - first))};
}

__device__ void load_eight(const float* row, bool present, float (&v)[8]) {
  float4 a{0, 0, 0, 0}, b{0, 0, 0, 0};
  if (present) a = reinterpret_cast<const float4*>(row)[0], b = reinterpret_cast<const float4*>(row)[1];
  v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}
__device__ void store_eight(void* to, const float (&v)[8]) {
  *static_cast<uint4*>(to) = {pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7])};
}
__device__ float sum_of_squares(const float (&v)[8]) {
  float sum = 0;
#pragma unroll
  for (int c = 0; c < 8; ++c) sum = fmaf(v[c], v[c], sum);
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  return sum;
}

// q, k and the log decays; a thread takes eight columns of a row. The loads of two rows are on their way at a
// time.
__device__ void load_chunk(const Chunks& a, Shared& s, const Place& place, int head) {
  constexpr int kPasses = 2, kRows = 2;
  const int d = threadIdx.x % 16 * 8;
  const float rate = a.a_exp[head];
  float bias[8];
  load_eight(a.dt_bias + head * kDim + d, true, bias);
#pragma unroll 1
  for (int pass = 0; pass < kPasses; ++pass) {
    float q[kRows][8], k[kRows][8], f[kRows][8];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int r = threadIdx.x / 16 + 16 * (kRows * pass + i);
      const bool live = r < place.live;
      const int64_t t = place.row + (live ? r : 0);
      const float* row = a.qkv(t) + head * kDim + d;
      load_eight(row, live, q[i]);
      load_eight(row + a.width(), live, k[i]);
      load_eight(a.forget(t) + head * kDim + d, live, f[i]);
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int r = threadIdx.x / 16 + 16 * (kRows * pass + i);
      const bool live = r < place.live;
      const float q_inverse = 1.0f / (sqrtf(sum_of_squares(q[i]) + kL2Eps) * sqrtf(static_cast<float>(kDim)));
      const float k_inverse = 1.0f / sqrtf(sum_of_squares(k[i]) + kL2Eps);
      float g[8];
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        q[i][c] *= q_inverse, k[i][c] *= k_inverse;
        g[c] = live ? kLog2E * a.lower_bound * fast_sigmoid(rate * (f[i][c] + bias[c])) : 0.0f;
      }
      store_eight(&s.q[r][d / 2], q[i]);
      store_eight(&s.k[r][d / 2], k[i]);
      *reinterpret_cast<float4*>(&s.g[r][d]) = {g[0], g[1], g[2], g[3]};
      *reinterpret_cast<float4*>(&s.g[r][d + 4]) = {g[4], g[5], g[6], g[7]};
    }
  }
  if (threadIdx.x < kTokens) {
    const int r = static_cast<int>(threadIdx.x);
    s.beta[r] = r < place.live ? sigmoid(a.beta(place.row + r)[head]) : 0.0f;
  }
}

// The sums of the log decays, token after token, a thread a column.
__device__ void add_decays(Shared& s) {
  const int column = threadIdx.x;
  if (column >= kDim) return;
  float sum = 0;
  for (int r = 0; r < kTokens; r += 16) {
    float g[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) g[i] = s.g[r + i][column];
#pragma unroll
    for (int i = 0; i < 16; ++i) s.g[r + i][column] = sum += g[i];
  }
}

// Kd, Qd and Kr to the record, and k with decay to the end of its sub-block: the columns of all products off
// the diagonal. A thread takes eight columns of a row.
__device__ void scale_rows(Shared& s, Record& out) {
#pragma unroll 1
  for (int task = threadIdx.x; task < kTokens * kDim / 8; task += kThreads) {
    const int r = task / 16, d = task % 16 * 8, end = r / kSub * kSub + kSub - 1;
    float kd[8], qd[8], kr[8], kc[8];
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const float2 g = *reinterpret_cast<const float2*>(&s.g[r][d + i]);
      const float2 e = *reinterpret_cast<const float2*>(&s.g[end][d + i]);
      const float2 l = *reinterpret_cast<const float2*>(&s.g[kTokens - 1][d + i]);
      const float2 k = unpack(s.k[r][(d + i) / 2]);
      const float2 q = unpack(s.q[r][(d + i) / 2]);
      const float2 from_start{fast_exp2(g.x), fast_exp2(g.y)};
      kd[i] = k.x * from_start.x, kd[i + 1] = k.y * from_start.y;
      qd[i] = q.x * from_start.x, qd[i + 1] = q.y * from_start.y;
      kr[i] = k.x * fast_exp2(l.x - g.x), kr[i + 1] = k.y * fast_exp2(l.y - g.y);
      kc[i] = k.x * fast_exp2(e.x - g.x), kc[i + 1] = k.y * fast_exp2(e.y - g.y);
    }
    const int at = d / 64 * kTokens * 64 + swizzled(r, d % 64);
    store_eight(&out.kd[0][0][0] + at, kd);
    store_eight(&out.qd[0][0][0] + at, qd);
    store_eight(&out.kr[0][0][0] + at, kr);
    store_eight(s.kc() + at, kc);
  }
  if (threadIdx.x < kDim) out.decay[threadIdx.x] = fast_exp2(s.g[kTokens - 1][threadIdx.x]);
}

// Rows of k or q with decay from the start of their sub-block b, times columns of k with decay to it: L
// (keys) or A. Off the diagonal both factors are at most 1 and go to f16; on it the columns' reach e^80 and
// go to TF32.
struct Gram {
  float off[3][2][4], diagonal[2][4];
};
__device__ void multiply_gram(Shared& s, bool keys, int b, Gram& out) {
  const int lane = threadIdx.x % 32, quad = lane % 4, row = kSub * b + lane / 4;
  const uint32_t(*rows)[68] = keys ? s.k : s.q;
  out = {};
#pragma unroll 1
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
        const float2 v = unpack(rows[r][d / 2]);
        const float2 k = unpack(s.k[r][d / 2]);
        const float2 by{g.x - start[p].x, g.y - start[p].y};
        x[p][lower] = {v.x * fast_exp2(by.x), v.y * fast_exp2(by.y)};
        y[p][lower] = {k.x * fast_exp2(-by.x), k.y * fast_exp2(-by.y)};
      }
    }
    // The order of k is free as long as both sides agree: the pairs of a lane are its two k.
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        const float left[4] = {x[p][0].x, x[p][1].x, x[p][0].y, x[p][1].y};
        mma_tf32(out.diagonal[n], left, y[p][n].x, y[p][n].y);
      }
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
      load_tiles(m, s.kc() + piece / 8 * kTokens * 64 +
                        swizzled(kSub * a + lane / 16 * 8 + lane % 8, piece % 8 * 8));
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
      mma_f16(out.off[a][0], left, m[0], m[1]);
      mma_f16(out.off[a][1], left, m[2], m[3]);
    }
  }
}
__device__ void store_gram(Shared& s, Record& record, bool keys, int b, const Gram& product) {
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
__device__ void merge(Shared& s, int warp, int b, int a) {
  const int lane = threadIdx.x % 32, r = lane / 2, first = lane % 2 * 8;
  float sum[8] = {};
  for (int k = kSub * a; k < kSub * b; ++k) {
    const float l = s.l[kSub * b + r][k];
#pragma unroll
    for (int c = 0; c < 8; ++c) sum[c] = fmaf(l, s.t[k][kSub * a + first + c], sum[c]);
  }
#pragma unroll
  for (int c = 0; c < 8; ++c) s.p[warp][r][first + c] = sum[c], sum[c] = 0;
  __syncwarp();
  for (int k = 0; k < kSub; ++k) {
    const float t = s.t[kSub * b + r][kSub * b + k];
#pragma unroll
    for (int c = 0; c < 8; ++c) sum[c] = fmaf(t, s.p[warp][k][first + c], sum[c]);
  }
#pragma unroll
  for (int c = 0; c < 8; ++c) s.t[kSub * b + r][kSub * a + first + c] = -sum[c];
  __syncwarp();
}

// (I + L)^-1: forward substitution on the diagonal, a thread a column, then the blocks below it.
__device__ void invert(Shared& s) {
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
#pragma unroll 1
  for (int distance = 1; distance < 4; ++distance) {
    __syncthreads();
    if (warp + distance < 4) merge(s, warp, warp + distance, warp);
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads, 2) prep_kernel(StepView step, Chunks a) {
  begin_dependent();
  Shared& s = *dynamic_shared<Shared>();
  const int32_t place = static_cast<int32_t>(blockIdx.x) / a.heads;
  const int head = static_cast<int>(blockIdx.x) - place * a.heads;
  const Place at = find(step, place);
  if (at.live == 0) return;
  Record& out = a.records[blockIdx.x];
  load_chunk(a, s, at, head);
  __syncthreads();
  add_decays(s);
  __syncthreads();
  scale_rows(s, out);
  __syncthreads();
  const int warp = threadIdx.x / 32;
  Gram product;
  multiply_gram(s, warp % 2 == 0, warp / 2, product);
  __syncthreads();  // the columns of k lay where L comes
  store_gram(s, out, warp % 2 == 0, warp / 2, product);
  __syncthreads();
  invert(s);
#pragma unroll 1
  for (int task = threadIdx.x; task < kTokens * kTokens / 8; task += kThreads) {
    const int i = task / 8, j = task % 8 * 8;
    float v[8];
#pragma unroll
    for (int c = 0; c < 8; ++c) v[c] = j / kSub <= i / kSub ? -s.t[i][j + c] * s.beta[j + c] : 0.0f;
    store_eight(&out.t[0][0] + swizzled(i, j), v);
  }
}

}  // namespace

void chunk::prepare_chunks(cudaStream_t stream, const StepView& step, const Chunks& a) {
  static const bool sized = [] {
    check(cudaFuncSetAttribute(prep_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)),
          "kda_chunk");
    return true;
  }();
  static_cast<void>(sized);
  const int64_t all = places(step.rows - step.decode_rows, step.sequences - step.decode_sequences);
  launch_dependent(stream, "kda_chunk", blocks_for(all * a.heads, 1), kThreads, sizeof(Shared), prep_kernel,
                   step, a);
}

}  // namespace godwit::sm90
