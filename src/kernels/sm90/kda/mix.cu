// kda_mix of the decode family (kernels spec §3.6): a block has one head of a sequence and walks its rows, up
// to eight at a time. Conv and low-rank gates of these rows first, then their norms, then the recurrence, row
// after row, then their gated norms. Records of an earlier verify are folded in before them by the same walk.
// When all sequences have one row, a block takes one head of up to four sequences: their rows are prepared
// together, and the next state is on its way while one is walked. A row's arithmetic is the same.
//
// A warp holds 16 value columns of the state in registers: lane (k, c) = (lane / 4, lane % 4) the cells of
// columns 4 c + {0 … 3} and of keys 32 i + 4 k + {0 … 3}. With decay d, o = (q d) S + (q · k) u, so that both
// dot products of a row are made of the state before it, and added over lanes together.
#include <algorithm>

#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/kda/slot.cuh"
#include "kernels/sm90/launches.h"
#include "kernels/sm90/linear/dot.cuh"

namespace godwit::sm90 {
namespace {

using kernels::RowKind;
using kernels::Sequence;

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kDim = 128;  // d, and K of the low-rank gates
constexpr int kTaps = 4, kPast = kTaps - 1;
constexpr int kChannels = 3 * kDim;
constexpr int kRowsAtOnce = 8, kMostGroup = 4;               // one column tile of mma
constexpr int kPitch = kDim + 4, kLowPitch = 2 * kDim + 16;  // values a row: no bank conflicts
constexpr int kParts = 3;                                    // bf16 parts that hold all 24 bits of a value
constexpr int kCells = 16;                                   // keys a lane holds, of four columns each
constexpr float kL2Eps = 1e-6f;                              // added to the sum of squares (trap T7)

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
  int32_t group;         // sequences of a block; above one, each has one row and nothing to fold in
};

struct Entry {  // a row of the walk
  int32_t slot;
  int32_t t;     // row of the step
  int32_t base;  // row of its sequence
  bool keeps;    // a verify: its record is kept, the state is not
  bool fresh;    // the state before it is zero
};

// Rows as vectors, [kRowsAtOnce][kPitch] each. `decay` and `gate` hold the inputs of the low-rank products
// until these are cut into parts, the others the parts until the products are made.
struct Vectors {
  using Rows = float[kRowsAtOnce][kPitch];
  Rows decay, gate;
  Rows q, k, kd;  // after their norms: q d, k, k d
  Rows v;         // then o

  __device__ float* low(int r) { return decay[0] + r * 2 * kDim; }  // of f_b, then of g_b
  __device__ uint16_t* low_parts(int p, int r) {                    // the same as bf16
    return reinterpret_cast<uint16_t*>(q) + (p * kRowsAtOnce + r) * kLowPitch;
  }
};
static_assert(2 * sizeof(Vectors::Rows) >= kRowsAtOnce * 2 * kDim * sizeof(float));
static_assert(4 * sizeof(Vectors::Rows) >= kParts * kRowsAtOnce * kLowPitch * sizeof(uint16_t));

struct Shared {
  uint8_t low_weights[2 * kDim * kDim * 2];  // f_b, then g_b, of this head; 32-byte pieces swizzled
  float4 conv[kChannels];                    // taps of q, k, v
  float bias[kDim];
  Vectors vectors;
  float qk[kRowsAtOnce], beta[kRowsAtOnce];
  Entry entry[kRowsAtOnce];

  // Behind all this. Of a sequence: the raw rows before its own, then these.
  __device__ float* raw(int row) { return reinterpret_cast<float*>(this + 1) + row * kChannels; }
};
template <bool kGrouped>
constexpr int kRawRows = kGrouped ? kMostGroup* kTaps : kPast + kRowsAtOnce;
// Behind these, when a block has several sequences: a state on its way. The next after that takes the place
// of low_weights.
constexpr size_t kStateBytes = size_t{kDim} * kDim * sizeof(float);
template <bool kGrouped>
constexpr size_t kSharedBytes = sizeof(Shared) + kRawRows<kGrouped>* kChannels * sizeof(float) +
                                (kGrouped ? kStateBytes : 0);
static_assert(sizeof(Shared::low_weights) == kStateBytes && sizeof(Shared) % 16 == 0);

template <class Window>
constexpr DType kWindowType = sizeof(Window) == 2 ? DType::bf16 : DType::f32;

// Where channel c of this head's q, k and v lies in a row of 3 W.
__device__ inline unsigned channel_of(unsigned c, const Mix& a, unsigned head) {
  return c / kDim * static_cast<unsigned>(a.width) + head * kDim + c % kDim;
}

__device__ void fill_constants(Shared& m, const Mix& a, unsigned head) {
#pragma unroll 1
  for (unsigned half = 0; half < 2; ++half) {
    const unsigned row = threadIdx.x / 16, piece = threadIdx.x % 16;
    const bf16* from = a.low[half] + (int64_t{head} * kDim + row) * a.low_stride[half] + 8 * piece;
    uint8_t* to =
        m.low_weights + (half * kDim + row) * 256 + ((piece / 2 ^ (row & 7)) << 5) + (piece % 2 << 4);
#pragma unroll 1
    for (unsigned i = 0; i < kDim * 16 / kThreads; ++i) {
      copy_async(to, from, true);
      to += kThreads / 16 * 256, from += kThreads / 16 * a.low_stride[half];
    }
  }
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < kChannels + kDim / 4; i += kThreads) {
    const unsigned c = 4 * (i - kChannels);
    copy_async(i < kChannels ? static_cast<void*>(&m.conv[i]) : &m.bias[c],
               i < kChannels ? a.conv + channel_of(i, a, head) * kTaps : a.dt_bias + head * kDim + c, true);
  }
}

// The entries' rows on their way, and `before` rows that come before the first in the step. Row r begins at
// m.raw(r * pitch + kPast).
__device__ void fill_rows(Shared& m, const Mix& a, unsigned head, int n, int before, int pitch) {
  constexpr int kRaw = kChannels / 4, kAll = kRaw + 2 * kDim / 4;  // 16-byte pieces a row
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < static_cast<unsigned>((before + n) * kAll); i += kThreads) {
    const int r = static_cast<int>(i / kAll) - before;
    const unsigned piece = i % kAll, c = 4 * (piece - kRaw);
    const int64_t t = r < 0 ? m.entry[0].t + r : m.entry[r].t;
    if (piece < kRaw) {
      copy_async(m.raw(kPast + r * pitch) + 4 * piece, a.raw(t) + channel_of(4 * piece, a, head), true);
    } else if (r >= 0) {
      copy_async(m.vectors.low(r) + c, c < kDim ? a.low_forget(t) + c : a.low_gate(t) + c - kDim, true);
    }
  }
  if (static_cast<int>(threadIdx.x) < n) {
    m.beta[threadIdx.x] = fast_sigmoid(a.beta(m.entry[threadIdx.x].t)[head]);
  }
}

// The rows before row 0 of each of n sequences: the last records of `replay`, and before them the window.
template <class Window>
__device__ void load_past(Shared& m, const Mix& a, unsigned head, int n, int replay) {
  constexpr unsigned kRow = kChannels / 4, kAll = kPast * kRow;
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < n * kAll; i += kThreads) {
    const Entry& entry = m.entry[i / kAll];
    const KdaSlot slot(a.state, entry.slot);
    const unsigned to = i % kAll / kRow, c = 4 * (i % kRow);
    const int record = static_cast<int>(to) + replay - kPast;
    const auto* from = static_cast<const Window*>(record >= 0 ? slot.pending_raw() : slot.window()) +
                       (record >= 0 ? record : kPast + record) * 3 * a.width + channel_of(c, a, head);
    float v[4] = {};
    if (record >= 0 || !entry.fresh) load_four<true>(from, 0, 4, v);
    *reinterpret_cast<float4*>(m.raw(i / kAll * kTaps + to) + c) = float4{v[0], v[1], v[2], v[3]};
  }
}

// The inputs of the low-rank products as bf16 operands: truncated, so that what is left of a value is exact.
__device__ void cut_low(Shared& m, int n) {
#pragma unroll 1
  for (int i = 2 * static_cast<int>(threadIdx.x); i < n * 2 * kDim; i += 2 * kThreads) {
    const int r = i / (2 * kDim), c = i % (2 * kDim);
    float2 x = *reinterpret_cast<const float2*>(m.vectors.low(r) + c);
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      *reinterpret_cast<uint32_t*>(m.vectors.low_parts(p, r) + c) = upper_halves(x.x, x.y);
      x = float2{rest_of(x.x), rest_of(x.y)};
    }
  }
}

// The low-rank products of up to eight rows into `decay` and `gate`; lane (g, t) gets outputs g and g + 8 of
// the warp's 16 for rows 2 t and 2 t + 1.
__device__ void multiply_low(Shared& m, int n) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  float sums[2][kParts][4] = {};
  const uint16_t* x = m.vectors.low_parts(0, min(g, n - 1)) + 4 * t;
  const uint8_t* rows = m.low_weights + (16 * warp + g) * 256 + 8 * t;
#pragma unroll 2
  for (int s = 0; s < kDim / 16; ++s) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint8_t* row = rows + half * kDim * 256 + ((s ^ g) << 5);
      const uint2 low = *reinterpret_cast<const uint2*>(row);
      const uint2 high = *reinterpret_cast<const uint2*>(row + 8 * 256);
      const uint32_t w[4] = {low.x, high.x, low.y, high.y};
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        const uint2 b =
            *reinterpret_cast<const uint2*>(x + p * kRowsAtOnce * kLowPitch + half * kDim + 16 * s);
        mma_bf16(sums[half][p], w, b.x, b.y);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // rows past the last are there, and never read
    const int r = 2 * t + i % 2, at = 16 * warp + g + 8 * (i / 2);
    m.vectors.decay[r][at] = sums[0][0][i] + (sums[0][1][i] + sums[0][2][i]);
    m.vectors.gate[r][at] = sums[1][0][i] + (sums[1][1][i] + sums[1][2][i]);
  }
}

// Everything that goes through a sigmoid: conv of q, k and v, decay, output gate.
template <class Window>
__device__ void activate(Shared& m, const Mix& a, float a_exp, unsigned head, int n, int pitch) {
  constexpr DType kType = kWindowType<Window>;
  constexpr unsigned kAll = kChannels + 2 * kDim;
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < n * kAll; i += kThreads) {
    const unsigned r = i / kAll, c = i % kAll, at = c % kDim;
    const Entry& entry = m.entry[r];
    float* const to = (c < kDim               ? m.vectors.q
                       : c < 2 * kDim         ? m.vectors.k
                       : c < kChannels        ? m.vectors.v
                       : c < kChannels + kDim ? m.vectors.decay
                                              : m.vectors.gate)[r] +
                      at;
    float x;
    if (c < kChannels) {
      const float4 w = m.conv[c];
      const float* raw = m.raw(r * pitch) + c;
      const float now = rounded_to(kType, raw[kPast * kChannels]);
      x = w.w * now;
      x = fmaf(w.z, rounded_to(kType, raw[2 * kChannels]), x);
      x = fmaf(w.y, rounded_to(kType, raw[kChannels]), x);
      x = fmaf(w.x, rounded_to(kType, raw[0]), x);
      if (entry.keeps) {
        store(KdaSlot(a.state, entry.slot).pending_raw(), kType,
              entry.base * 3 * a.width + static_cast<int>(channel_of(c, a, head)), now);
      }
    } else {
      x = *to;
      if (c < kChannels + kDim) x = a_exp * (x + m.bias[at]);
    }
    float y = fast_sigmoid(x);
    if (c < kChannels) {
      y *= x;
    } else if (c < kChannels + kDim) {
      const float decay = a.lower_bound * y;
      y = decay_of(decay);
      if (entry.keeps) {
        KdaSlot(a.state, entry.slot).pending_decay()[entry.base * a.width + head * kDim + at] = decay;
      }
    }
    *to = y;
  }
}

template <int kCount>
__device__ inline void warp_sums(float (&v)[kCount]) {
#pragma unroll 1
  for (int offset = 16; offset > 0; offset /= 2) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) v[i] += __shfl_xor_sync(0xffffffffu, v[i], offset);
  }
}
__device__ inline float dot(const float4& x, const float4& y) {
  return fmaf(x.w, y.w, fmaf(x.z, y.z, fmaf(x.y, y.y, x.x * y.x)));
}
__device__ inline float4 scaled(const float4& x, float by) {
  return {x.x * by, x.y * by, x.z * by, x.w * by};
}
__device__ inline float4 times(const float4& x, const float4& y) {
  return {x.x * y.x, x.y * y.y, x.z * y.z, x.w * y.w};
}

// A warp a row: the norms of q and k, and what the walk multiplies by.
__device__ void normalise(Shared& m, const Mix& a, unsigned head, int r) {
  const int lane = threadIdx.x % 32;
  const auto at = [lane](float* row) { return reinterpret_cast<float4*>(row) + lane; };
  const float4 q = *at(m.vectors.q[r]), d = *at(m.vectors.decay[r]);
  float4 k = *at(m.vectors.k[r]);
  float sums[3] = {dot(q, q), dot(k, k), dot(q, k)};
  warp_sums(sums);
  const float scale_q = fast_rsqrt(sums[0] + kL2Eps) * 0.08838834764831845f;  // 1 / sqrt(128)
  const float scale_k = fast_rsqrt(sums[1] + kL2Eps);
  k = scaled(k, scale_k);
  *at(m.vectors.k[r]) = k;
  *at(m.vectors.kd[r]) = times(k, d);
  *at(m.vectors.q[r]) = times(scaled(q, scale_q), d);
  if (lane == 0) m.qk[r] = sums[2] * scale_q * scale_k;
  const Entry& entry = m.entry[r];
  if (entry.keeps) *at(KdaSlot(a.state, entry.slot).pending_key() + entry.base * a.width + head * kDim) = k;
}

// Records [base, base + n) as rows of the walk.
__device__ void load_records(Shared& m, const Mix& a, unsigned head, const KdaSlot& slot, int n, int base) {
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < n * kDim; i += kThreads) {
    const int r = i / kDim, c = i % kDim, from = (base + r) * a.width + static_cast<int>(head) * kDim + c;
    m.vectors.k[r][c] = slot.pending_key()[from];
    m.vectors.decay[r][c] = decay_of(slot.pending_decay()[from]);
    m.vectors.v[r][c] = slot.pending_delta()[from];
  }
}

__device__ void finish_row(const Shared& m, const Mix& a, const float4& weight, unsigned head, int r) {
  const int lane = threadIdx.x % 32;
  const float4 o = reinterpret_cast<const float4*>(m.vectors.v[r])[lane];
  const float4 gate = reinterpret_cast<const float4*>(m.vectors.gate[r])[lane];
  float squares[1] = {dot(o, o)};
  warp_sums(squares);
  const float scale = fast_rsqrt(squares[0] * (1.0f / kDim) + a.eps);
  a.out.put(m.entry[r].t, head * kDim + 4 * lane, times(times(scaled(o, scale), weight), gate));
}

struct Column4 {
  float v[4];
};
__device__ inline Column4 four(const float* p) {
  const float4 f = *reinterpret_cast<const float4*>(p);
  return {{f.x, f.y, f.z, f.w}};
}

// Row r of the walk: what lane (k, c) sees of it, and the update. `folds`: u is given, and nothing is asked.
__device__ inline void walk(Shared& m, float (&cell)[kCells][4], int r, bool folds, float* kept) {
  const int lane = threadIdx.x % 32, c = lane % 4, column = 16 * (threadIdx.x / 32) + 4 * c;
  const int key = lane / 4 * 4;
  Column4 u;
  if (folds) {
    u = four(m.vectors.v[r] + column);
  } else {
    float sums[8] = {};  // of k d and the columns, then of q d
#pragma unroll
    for (int i = 0; i < kCells / 4; ++i) {
      const Column4 k = four(m.vectors.kd[r] + 32 * i + key), q = four(m.vectors.q[r] + 32 * i + key);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          sums[e] = fmaf(k.v[j], cell[4 * i + j][e], sums[e]);
          sums[4 + e] = fmaf(q.v[j], cell[4 * i + j][e], sums[4 + e]);
        }
      }
    }
    // Each step halves what a lane adds up, until it has one sum over all keys.
    const int bits = lane / 4;
#pragma unroll
    for (int half = 4; half > 0; half /= 2) {
      const bool upper = (bits & half) != 0;
#pragma unroll
      for (int j = 0; j < half; ++j) {
        const float given = upper ? sums[j] : sums[half + j];
        sums[j] = (upper ? sums[half + j] : sums[j]) + __shfl_xor_sync(0xffffffffu, given, 4 * half);
      }
    }
    const int own = column + bits % 4;
    const float delta = m.beta[r] * (m.vectors.v[r][own] - sums[0]);
    const float partner = __shfl_xor_sync(0xffffffffu, delta, 16);
    if (bits >= 4) {
      m.vectors.v[r][own] = fmaf(m.qk[r], partner, sums[0]);
    } else if (kept != nullptr) {
      kept[own] = delta;
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) u.v[e] = __shfl_sync(0xffffffffu, delta, 4 * e + c);
  }
#pragma unroll
  for (int i = 0; i < kCells / 4; ++i) {
    const Column4 k = four(m.vectors.k[r] + 32 * i + key), d = four(m.vectors.decay[r] + 32 * i + key);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& s = cell[4 * i + j][e];
        s = updated(decayed(s, d.v[j]), k.v[j], u.v[e]);
      }
    }
  }
}

// This thread's cells of a state: pieces of four columns, `at(i)` floats from its first.
__device__ inline int cell_at(int i) {
  return (i / 4 * 32 + i % 4) * kDim;
}
__device__ inline float* cells_of(const Mix& a, int32_t slot, unsigned head) {
  const int lane = threadIdx.x % 32, key = lane / 4 * 4,
            column = 16 * (static_cast<int>(threadIdx.x) / 32) + lane % 4 * 4;
  return KdaSlot(a.state, slot).state() + (static_cast<int>(head) * kDim + key) * kDim + column;
}

template <class Window>
__device__ inline void save_window(Shared& m, const Mix& a, int32_t slot, unsigned head, int from) {
  // What comes after rows that end in m.raw(from + kPast - 1).
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < kPast * kChannels; i += kThreads) {
    const unsigned at = i / kChannels * 3 * a.width + channel_of(i % kChannels, a, head);
    store(KdaSlot(a.state, slot).window(), kWindowType<Window>, at,
          m.raw(from + i / kChannels)[i % kChannels]);
  }
}

template <class Window, bool kGrouped>
__global__ void __launch_bounds__(kThreads, kGrouped ? 1 : 2)
    mix_kernel(StepView step, const __grid_constant__ Mix a) {
  let_next_start();
  Shared& m = *dynamic_shared<Shared>();
  const unsigned heads = static_cast<unsigned>(a.heads), head = blockIdx.x % heads;
  const int first_sequence = static_cast<int>(blockIdx.x / heads) * a.group;
  const Sequence s = step.sequence[first_sequence];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool verify = s.kind == RowKind::verify, fresh = s.first == s.replay;
  const int sequences = kGrouped ? min(a.group, step.decode_sequences - first_sequence) : 1;
  const int pitch = kGrouped ? kTaps : 1;
  if (static_cast<int>(threadIdx.x) < sequences) {
    const Sequence& own = step.sequence[first_sequence + threadIdx.x];
    m.entry[threadIdx.x] = {own.slot, own.row, 0, own.kind == RowKind::verify, own.first == own.replay};
  }
  // Constants, and what only the step before has written.
  fill_constants(m, a, head);
  const float4 weight = reinterpret_cast<const float4*>(a.norm)[lane];
  const float a_exp = a.a_exp[head];
  float* const stored = cells_of(a, s.slot, head);
  float cell[kCells][4];
#pragma unroll
  for (int i = 0; i < kCells; ++i) {
    const Column4 four_cells = fresh ? Column4{} : four(stored + cell_at(i));
#pragma unroll
    for (int e = 0; e < 4; ++e) cell[i][e] = four_cells.v[e];
  }
  // Of a group: the next state on its way, each thread its own cells.
  const auto buffer = [&m](int e) {
    return reinterpret_cast<float4*>(e % 2 == 0 ? m.low_weights
                                                : reinterpret_cast<uint8_t*>(m.raw(kRawRows<true>))) +
           threadIdx.x;
  };
  const auto fetch = [&](int e) {
    if (e < sequences) {
      const float* from = cells_of(a, m.entry[e].slot, head);
      float4* to = buffer(e);
#pragma unroll 4
      for (int i = 0; i < kCells; ++i) copy_async(to + i * kThreads, from + cell_at(i), !m.entry[e].fresh);
    }
    commit_copies();
  };
  __syncthreads();
  load_past<Window>(m, a, head, sequences, s.replay);
  wait_for_previous();
  const int folds = s.replay, all = kGrouped ? sequences : folds + s.rows;
  if (verify && folds > 0) {
    __syncthreads();  // the window has been read
    save_window<Window>(m, a, s.slot, head, 0);
  }
  int count = 0;
#pragma unroll 1
  for (int first = 0; first < all; first += count) {
    const bool folding = first < folds;
    const int base = folding ? first : first - folds;
    count = min(kRowsAtOnce, (folding ? folds : all) - first);
    __syncthreads();  // the rows before are done with shared memory
    if (folding) {
      load_records(m, a, head, KdaSlot(a.state, s.slot), count, base);
    } else {
      if (!kGrouped && static_cast<int>(threadIdx.x) < count) {
        const int row = base + static_cast<int>(threadIdx.x);
        m.entry[threadIdx.x] = {s.slot, s.row + row, row, verify, false};
      }
      __syncthreads();
      fill_rows(m, a, head, count, base > 0 ? kPast : 0, pitch);
      commit_copies();
      wait_copies<0>();
      __syncthreads();
      if (kGrouped) fetch(1);
      cut_low(m, count);
      __syncthreads();
      multiply_low(m, count);
      __syncthreads();
      activate<Window>(m, a, a_exp, head, count, pitch);
      __syncthreads();
      if (warp < count) normalise(m, a, head, warp);
    }
    __syncthreads();
#pragma unroll 1
    for (int r = 0; r < count; ++r) {
      const Entry& entry = m.entry[r];
      const bool keeps = !folding && entry.keeps;
      walk(m, cell, r, folding,
           keeps ? KdaSlot(a.state, entry.slot).pending_delta() + entry.base * a.width + head * kDim
                 : nullptr);
      const bool saves = kGrouped ? !entry.keeps : first + r + 1 == (verify ? folds : all);
      if (saves) {
        float* const to = kGrouped ? cells_of(a, entry.slot, head) : stored;
#pragma unroll
        for (int i = 0; i < kCells; ++i) {
          *reinterpret_cast<float4*>(to + cell_at(i)) =
              float4{cell[i][0], cell[i][1], cell[i][2], cell[i][3]};
        }
      }
      if (!kGrouped || r + 1 == count) continue;
      fetch(r + 2);
      wait_copies<1>();
      const float4* from = buffer(r + 1);
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
        const float4 v = from[i * kThreads];
        cell[i][0] = v.x, cell[i][1] = v.y, cell[i][2] = v.z, cell[i][3] = v.w;
      }
    }
    if (folding) continue;
    __syncthreads();
    if (warp < count) finish_row(m, a, weight, head, warp);
  }
  if constexpr (kGrouped) {
#pragma unroll 1
    for (int e = 0; e < sequences; ++e) {
      if (!m.entry[e].keeps) save_window<Window>(m, a, m.entry[e].slot, head, e * kTaps + 1);
    }
  } else {
    if (!verify) save_window<Window>(m, a, s.slot, head, s.rows > 0 ? count : 0);
  }
}

template <class Window, bool kGrouped>
void launch(cudaStream_t stream, const StepView& step, const Mix& a) {
  static const bool sized = [] {
    check(cudaFuncSetAttribute(mix_kernel<Window, kGrouped>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(kSharedBytes<kGrouped>)),
          "kda_mix");
    return true;
  }();
  static_cast<void>(sized);
  const int64_t groups = (step.decode_sequences + a.group - 1) / a.group;
  launch_dependent(stream, "kda_mix", blocks_for(groups * a.heads, 1), kThreads, kSharedBytes<kGrouped>,
                   mix_kernel<Window, kGrouped>, step, a);
}
template <class Window>
void launch(cudaStream_t stream, const StepView& step, const Mix& a) {
  if (a.group > 1) return launch<Window, true>(stream, step, a);
  launch<Window, false>(stream, step, a);
}

// Sequences of a block: one as long as all blocks run at once, two on a multiprocessor.
int32_t group_of(const StepView& step, int64_t heads, int multiprocessors) {
  const int64_t blocks = step.decode_sequences * heads;
  if (blocks <= 2 * multiprocessors || step.decode_rows != step.decode_sequences || step.replays > 0)
    return 1;
  return static_cast<int32_t>(
      std::min<int64_t>(kMostGroup, (blocks + multiprocessors - 1) / multiprocessors));
}

}  // namespace

bool fits_kda_mix(const kernels::KdaMix& a) {
  const auto aligned = [](const void* p, int64_t stride_bytes) {
    return reinterpret_cast<uintptr_t>(p) % 16 == 0 && stride_bytes % 16 == 0;
  };
  const auto rows = [&](const View& v) { return v.dtype == DType::f32 && aligned(v.data, v.stride * 4); };
  const auto low_rank = [&](const kernels::Linear& l) {
    return l.w.data.dtype == DType::bf16 && l.w.in() == kDim && aligned(l.w.data.data, l.w.data.stride * 2) &&
           rows(l.x);
  };
  const kernels::KdaState& state = a.conv.state;
  return a.norm.head_dim == kDim && a.conv.taps == kTaps && low_rank(a.forget) && low_rank(a.gate) &&
         rows(a.conv.raw) && aligned(a.norm.out.data, a.norm.out.stride * size_of(a.norm.out.dtype)) &&
         aligned(a.conv.weight, 0) && aligned(a.gates.dt_bias, 0) && aligned(a.norm.weight, 0) &&
         aligned(state.base + state.state_offset, state.slot_stride) && state.pending_key_offset % 16 == 0;
}

void kda_mix(cudaStream_t stream, const StepView& step, const kernels::KdaMix& a, int multiprocessors) {
  const Mix m{rows_of<const float>(a.conv.raw),
              rows_of<const float>(a.forget.x),
              rows_of<const float>(a.gate.x),
              rows_of<const float>(a.gates.beta),
              a.conv.weight,
              {static_cast<const bf16*>(a.forget.w.data.data), static_cast<const bf16*>(a.gate.w.data.data)},
              {a.forget.w.data.stride, a.gate.w.data.stride},
              a.gates.a_exp,
              a.gates.dt_bias,
              a.gates.lower_bound,
              a.norm.weight,
              a.norm.eps,
              a.conv.state,
              activation_rows(a.norm.out),
              static_cast<int32_t>(a.gates.beta.cols),
              static_cast<int32_t>(a.norm.out.cols),
              group_of(step, a.gates.beta.cols, multiprocessors)};
  if (a.conv.state.window_dtype == DType::bf16) return launch<bf16>(stream, step, m);
  launch<float>(stream, step, m);
}

}  // namespace godwit::sm90
