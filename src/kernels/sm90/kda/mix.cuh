// kda_mix of the decode family (kernels spec §3.6): what its two forms share, which is all arithmetic whose
// order decides bits. A head's value columns are four quarters of 32, walked by 128 threads each: four blocks
// of a cluster (mix_few.cu) or the warps of one block (mix_many.cu).
//
// A warp of a quarter has eight columns of the state: lane (k, c) = (lane / 2, lane % 2) the cells of columns
// 4 c + {0 … 3} and of keys 64 i + 4 k + {0 … 3}. With decay d, o = (q d) S + (q · k) u, so that both dot
// products of a row are made of the state before it; they and the sums for the norms of q and k are added
// over lanes together.
#pragma once

#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/device/warpgroup.cuh"
#include "kernels/sm90/kda/slot.cuh"
#include "kernels/sm90/linear/dot.cuh"

namespace godwit::sm90::mix {

constexpr int kDim = 128;  // d, and K of the low-rank gates
constexpr int kTaps = 4, kPast = kTaps - 1;
constexpr int kQuarters = 4, kColumns = kDim / kQuarters;
constexpr int kWarps = 4, kThreads = 32 * kWarps;  // of a quarter
constexpr int kCells = 8;                          // keys a lane holds, of four columns each
constexpr float kL2Eps = 1e-6f;                    // added to the sum of squares (trap T7)

struct Mix {
  Rows<const float> raw, low_forget, low_gate, beta;
  const float* conv;   // [3 W, taps]
  const bf16* low[2];  // f_b and g_b: [W, d]
  int64_t low_stride[2];
  const float *a_exp, *dt_bias;
  float lower_bound;
  const float* norm;  // [d]
  float eps;
  kernels::KdaState state;
  ActivationRows out;
  int32_t heads, width;  // W
};

struct Entry {  // a row of the walk
  int32_t slot;
  int32_t t;          // row of the step
  int32_t base;       // row of its sequence
  bool keeps;         // a verify: its record is kept, the state is not
  bool fresh;         // the state before it is zero
  bool moves_window;  // behind the last row it ends with it; a verify's ends with what is folded in before
                      // row 0
};
__device__ inline Entry entry_of(const kernels::Sequence& s, int row) {
  const bool keeps = s.kind == kernels::RowKind::verify;
  return {s.slot, s.row + row,         row,
          keeps,  s.first == s.replay, keeps ? row == 0 && s.replay > 0 : row + 1 == s.rows};
}

// One sequence a cluster, and `group` sequences a block.
void launch_few(cudaStream_t stream, const kernels::StepView& step, const Mix& a, DType window);
void launch_many(cudaStream_t stream, const kernels::StepView& step, const Mix& a, DType window,
                 int32_t group);

struct Column4 {
  float v[4];
};
__device__ inline Column4 four(const float* p) {
  const float4 f = *reinterpret_cast<const float4*>(p);
  return {{f.x, f.y, f.z, f.w}};
}
__device__ inline void store_four(float* to, const float (&v)[4]) {
  *reinterpret_cast<float4*>(to) = float4{v[0], v[1], v[2], v[3]};
}
__device__ inline void store_four(bf16* to, const float (&v)[4]) {
  *reinterpret_cast<uint2*>(to) = uint2{two_bf16(v[0], v[1]), two_bf16(v[2], v[3])};
}

// Inputs of a low-rank product as bf16 parts: truncated, so that what is left of a value is exact. Of the
// sixteen rows of mma, row g is the first part of row g % 4 of four below four and its third part above, row
// g + 8 its second part below four and zero above. A lane has four keys of row g % 4 in a step, in the order
// in which it has the weights'.
__device__ inline void cut(float first, float second, bool below, uint32_t& low, uint32_t& high) {
  const uint32_t top = upper_halves(first, second);
  first = rest_of(first), second = rest_of(second);
  const uint32_t middle = upper_halves(first, second);
  low = below ? top : upper_halves(rest_of(first), rest_of(second));
  high = below ? middle : 0;
}
__device__ inline void cut_four(const float4& v, bool below, uint32_t (&rows)[4]) {
  cut(v.x, v.y, below, rows[0], rows[1]);
  cut(v.z, v.w, below, rows[2], rows[3]);
}
// Outputs of 32 keys that lane (g, t) has below g = 4: of row g and weight rows 2 t and 2 t + 1 of a tile.
// `third`: what lane g + 4 has of them. The quarters of K are added by sum_of_four().
__device__ inline float sum_of_parts(const float (&sums)[4], int e, float third) {
  return sums[e] + (sums[2 + e] + third);
}
__device__ inline float sum_of_four(float a, float b, float c, float d) {
  return (a + b) + (c + d);
}

// g of spec §8.3, and what the output gate multiplies by.
__device__ inline float log_decay(const Mix& a, float a_exp, float low, float bias) {
  return a.lower_bound * fast_sigmoid(a_exp * (low + bias));
}
__device__ inline float gated(float o, float weight, float gate) {
  return o * weight * gate;
}

// Conv and SiLU of four channels; `taps` of each.
__device__ inline void convolve_four(const float (&x)[kTaps][4], const float4* taps, float (&y)[4]) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const float4 w = taps[e];
    float sum = w.w * x[3][e];
    sum = fmaf(w.z, x[2][e], sum);
    sum = fmaf(w.y, x[1][e], sum);
    sum = fmaf(w.x, x[0][e], sum);
    y[e] = sum * fast_sigmoid(sum);
  }
}

// What a lane sees of a row, and the row's update of its cells.
struct Lane {
  float cell[kCells][4];
  Column4 k[2], d[2], u;

  __device__ void set(int i, const float4& v) {
    cell[i][0] = v.x, cell[i][1] = v.y, cell[i][2] = v.z, cell[i][3] = v.w;
  }
  __device__ float4 get(int i) const { return {cell[i][0], cell[i][1], cell[i][2], cell[i][3]}; }
  __device__ void see(const float* key, const float* decay, int i) {
    const int at = 64 * i + threadIdx.x % 32 / 2 * 4;
    k[i] = four(key + at);
    d[i] = four(decay + at);
  }
  __device__ void update() {
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        cell[i][e] = updated(decayed(cell[i][e], d[i / 4].v[i % 4]), k[i / 4].v[i % 4], u.v[e]);
      }
    }
  }
};
// Where a lane's first cell lies in a quarter of a state, and its others behind it.
__device__ inline int first_cell() {
  const int lane = threadIdx.x % 32;
  return lane / 2 * 4 * kDim + threadIdx.x / 32 % kWarps * 8 + lane % 2 * 4;
}
__device__ inline int cell_at(int i) {
  return (i / 4 * 64 + i % 4) * kDim;
}

// What the norms of q and k make of a row's sums.
struct Scales {
  float q, k, qk;
};
// Of a lane's keys, which are added over lanes by halving.
__device__ inline void add_products(const Column4& q, const Column4& k, float (&products)[3]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    products[0] = fmaf(q.v[j], q.v[j], products[0]);
    products[1] = fmaf(k.v[j], k.v[j], products[1]);
    products[2] = fmaf(q.v[j], k.v[j], products[2]);
  }
}
__device__ inline Scales scales_of(const float (&products)[3]) {
  const float q = fast_rsqrt(products[0] + kL2Eps) * 0.08838834764831845f;  // 1 / sqrt(128)
  const float k = fast_rsqrt(products[1] + kL2Eps);
  return {q, k, products[2] * q * k};
}
__device__ inline Column4 times(const Column4& x, const Column4& y) {
  return {{x.v[0] * y.v[0], x.v[1] * y.v[1], x.v[2] * y.v[2], x.v[3] * y.v[3]}};
}
__device__ inline Column4 times(const Column4& x, float y) {
  return {{x.v[0] * y, x.v[1] * y, x.v[2] * y, x.v[3] * y}};
}

// A row in shared memory: all of q, k and decay, of v a quarter's columns, where o comes. When it is
// prepared, k is normalised, q multiplied by the decay, and so is kd, k before its norm.
struct WalkRow {
  const float *q, *k, *d;
  float* v;
  float beta;
  const float* kd;
  const Scales* scales;
};
__device__ inline int o_column() {
  const int lane = threadIdx.x % 32;
  return threadIdx.x / 32 % kWarps * 8 + lane % 2 * 4 + lane / 4 % 4;
}
// o of a row, and what its update needs. Lanes from 16 on get o of column o_column().
template <bool kPrepared>
__device__ inline float look(const Mix& a, Lane& own, const WalkRow& row, const Entry& entry, int head,
                             int quarter) {
  const int lane = threadIdx.x % 32, key = lane / 2 * 4;
  float sums[8] = {};  // of k d and the columns, then of q d
  float products[3] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const Column4 q = four(row.q + 64 * i + key);
    Column4 kd, qd;
    if constexpr (kPrepared) {
      kd = four(row.kd + 64 * i + key);
      qd = q;
    } else {
      own.see(row.k, row.d, i);
      kd = times(own.k[i], own.d[i]);
      qd = times(q, own.d[i]);
      add_products(q, own.k[i], products);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        sums[e] = fmaf(kd.v[j], own.cell[4 * i + j][e], sums[e]);
        sums[4 + e] = fmaf(qd.v[j], own.cell[4 * i + j][e], sums[4 + e]);
      }
    }
  }
  // Each step halves the sums a lane adds up, until it has one over all keys.
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const int offset = 16 >> step, half = 4 >> step;
    const bool upper = (lane & offset) != 0;
#pragma unroll
    for (int j = 0; j < half; ++j) {
      const float given = upper ? sums[j] : sums[half + j];
      sums[j] = (upper ? sums[half + j] : sums[j]) + __shfl_xor_sync(0xffffffffu, given, offset);
    }
    if (half == 0) sums[0] += __shfl_xor_sync(0xffffffffu, sums[0], offset);
    if constexpr (!kPrepared) {
#pragma unroll
      for (float& product : products) product += __shfl_xor_sync(0xffffffffu, product, offset);
    }
  }
  const Scales scales = kPrepared ? *row.scales : scales_of(products);
  const bool has_o = lane >= 16, writes = (lane & 2) == 0;
  const int column = o_column();
  const float delta = row.beta * (row.v[column] - scales.k * sums[0]);
  const float o = fmaf(scales.qk, __shfl_xor_sync(0xffffffffu, delta, 16), scales.q * sums[0]);
#pragma unroll
  for (int e = 0; e < 4; ++e) own.u.v[e] = __shfl_sync(0xffffffffu, delta, 4 * e + lane % 2);
  if (has_o && writes) row.v[column] = o;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if constexpr (kPrepared) {
      own.see(row.k, row.d, i);
    } else {
      own.k[i] = times(own.k[i], scales.k);
    }
  }
  if (!entry.keeps) return o;
  const KdaSlot slot(a.state, entry.slot);
  const int record = entry.base * a.width + head * kDim;
  if (!has_o && writes) slot.pending_delta()[record + kColumns * quarter + column] = delta;
  if constexpr (!kPrepared) {
    if (threadIdx.x / 32 % kWarps != 0 || lane % 2 != 0) return o;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if ((64 * i + key) / kColumns == quarter)
        store_four(slot.pending_key() + record + 64 * i + key, own.k[i].v);
    }
  }
  return o;
}

// The squares of o are added in this order of a column's bits: 2, 0, 1, 3, 4, 5, 6. This: bits 2, 0 and 1, of
// lanes that have look()'s o.
__device__ inline float squares_of_eight(float o) {
  float squares = o * o;
  squares += __shfl_xor_sync(0xffffffffu, squares, 1);
  squares += __shfl_xor_sync(0xffffffffu, squares, 4);
  squares += __shfl_xor_sync(0xffffffffu, squares, 8);
  return squares;
}
__device__ inline float norm_scale(const Mix& a, float squares) {
  return fast_rsqrt(squares * (1.0f / kDim) + a.eps);
}

}  // namespace godwit::sm90::mix
