// Everything of a chunk that does not depend on the state before it: a block a chunk and head.
#include "kernels/sm90/kda/chunk.cuh"

namespace godwit::sm90 {
namespace {

using namespace chunk;

constexpr int kThreads = 256, kWarps = kThreads / 32, kTaps = 4;
constexpr int kRows = kTokens / kWarps;  // of a warp, one after the other
constexpr int kPitch = 12;
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kQueryScale = 0.08838834764831845f;  // 1 / sqrt(d)
constexpr float kL2Eps = 1e-6f;                      // added to the sum of squares (trap T7)

struct alignas(16) Shared {
  uint32_t q[kTokens][68],
      k[kTokens][68];     // two f16 each, normalised; 68: rows do not start in the same bank
  float g[kTokens][136];  // sums of the log decays from the chunk's start, times log2 e
  float l[kTokens][68];   // strictly lower part of beta k k^T with decay
  float t[kTokens][68];   // (I + L)^-1
  float beta[kTokens];
  union {
    float total[kWarps][kDim];  // of the log decays of a warp's rows
    float p[4][2 * kSub][kPitch];
  };
  // The columns of k off the diagonal, [2][64][64] f16, lie where L comes later.
  __device__ uint16_t* kc() { return reinterpret_cast<uint16_t*>(&l[0][0]); }
};
static_assert(sizeof(Shared::l) >= kPart * sizeof(uint16_t));
static_assert(sizeof(Shared::l) + sizeof(Shared::t) >= 2 * kPart * sizeof(uint16_t));

using Four = float[4];  // columns of a lane

__device__ inline void load_four(const float* from, Four& v) {
  const float4 x = *reinterpret_cast<const float4*>(from);
  v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
}
__device__ inline void store_four(void* to, const Four& v) {
  *static_cast<uint2*>(to) = {pack(v[0], v[1]), pack(v[2], v[3])};
}

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
__device__ void load_rows(const Chunks& a, const Chunk& c, int part, float (&v)[kRows][4]) {
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
__device__ void put_unit_rows(float (&v)[kRows][4], float factor, uint32_t (*to)[68]) {
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

__device__ void put_values(const float (&v)[kRows][4], Record& out) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int i = 0; i < kRows; ++i)
    *reinterpret_cast<float4*>(out.values[lane / 4].v + value_at(kRows * warp + i, lane % 4 * 4)) = {
        v[i][0], v[i][1], v[i][2], v[i][3]};
}

// f of the chunk by its low-rank product, to where the sums of decays come later. Its input lies where L and
// T come.
__device__ void multiply_forget(const Chunks& a, int64_t first, Shared& s) {
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
__device__ void load_decays(const Chunks& a, const Chunk& c, Shared& s, float (&g)[kRows][4]) {
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
__device__ void scale_rows(float (&g)[kRows][4], Shared& s, Record& out) {
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
__device__ void multiply_gram(Shared& s, int half, int b, Gram (&out)[2]) {
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
__device__ void store_gram(Shared& s, Record& record, int half, int b, const Gram (&both)[2]) {
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
__device__ void multiply_square(const float* a, const float* b, float (&d)[kSize / 16][4]) {
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
__device__ void merge(Shared& s, int first, int column) {
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

__global__ void __launch_bounds__(kThreads, 2) prep_kernel(StepView step, Chunks a) {
  begin_dependent();
  Shared& s = *dynamic_shared<Shared>();
  const int32_t place = static_cast<int32_t>(blockIdx.x) / a.heads;
  const int head = static_cast<int>(blockIdx.x) - place * a.heads;
  const Place at = find(step, place);
  if (at.live == 0) return;
  Record& out = a.records[blockIdx.x];
  const int warp = threadIdx.x / 32;
  const kernels::Sequence& sequence = step.sequence[at.sequence];
  const Chunk chunk{sequence, head, at.first + kRows * warp, at.live - kRows * warp};
  if (threadIdx.x < kTokens) {
    const int r = static_cast<int>(threadIdx.x);
    s.beta[r] = r < at.live ? sigmoid(a.beta(int64_t{sequence.row} + at.first + r)[head]) : 0.0f;
  }
  if (a.f_b.w.data) {
    stage_low<kThreads>(a.f_b.x, int64_t{sequence.row} + at.first, at.live, s.kc());
    __syncthreads();
    multiply_forget(a, int64_t{head} * kDim, s);
    __syncthreads();
  }
  float x[kRows][4];
#pragma unroll 1
  for (int part = 0; part < 3; ++part) {
    load_rows(a, chunk, part, x);
    if (part == 2) {
      put_values(x, out);
    } else {
      put_unit_rows(x, part == 0 ? kQueryScale : 1.0f, part == 0 ? s.q : s.k);
    }
  }
  load_decays(a, chunk, s, x);
  __syncthreads();
  scale_rows(x, s, out);
  __syncthreads();
  {
    Gram both[2] = {};
    multiply_gram(s, warp % 2, warp / 2, both);
    __syncthreads();  // the columns of k lay where L comes, q and k where sums are exchanged
    store_gram(s, out, warp % 2, warp / 2, both);
  }
  __syncthreads();
  invert(s);
#pragma unroll 1
  for (int task = threadIdx.x; task < kTokens * kTokens / 8; task += kThreads) {
    const int i = task / 8, j = task % 8 * 8;
    if (j / kSub > i / kSub) continue;  // not read
    float v[8];
#pragma unroll
    for (int c = 0; c < 8; ++c) v[c] = -s.t[i][j + c] * s.beta[j + c];
    *reinterpret_cast<uint4*>(&out.t[0][0] + swizzled(i, j)) = {pack(v[0], v[1]), pack(v[2], v[3]),
                                                                pack(v[4], v[5]), pack(v[6], v[7])};
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
