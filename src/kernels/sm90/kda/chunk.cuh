// The chunk form of KDA (kernels spec §2.4, §4.4): what its three kernels share. A chunk is 64 tokens on the
// absolute grid; what does not depend on the state before it is prepared for all chunks at once, as a record
// that the scan and the last kernel read.
#pragma once

#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/kda/slot.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90::chunk {

constexpr int kTokens = 64, kDim = 128, kSub = 16;

// f16 in tiles with rows of 64 values, whose 16-byte pieces are exchanged so that ldmatrix meets no bank
// twice. G is the sum of log decays from the start of the chunk to a token, that token included. Values that
// the last two kernels share lie as a warp's lanes hold them: of 16 value columns (row and row + 8 of a lane)
// and 16 tokens or keys, the left operand of m16n8k16, which is also the right operand of its transpose.
union Values {
  float v[kTokens * 16];      // at value_at()
  uint4 u[kTokens / 16][32];  // as lanes hold it
};
struct alignas(16) Record {
  uint16_t kd[2][kTokens][64];   // k e^G, [half of d][token][d]
  uint16_t kr[2][kTokens][64];   // k e^(G of the last token - G)
  uint16_t t[kTokens][kTokens];  // -(I + L)^-1 diag(beta), [token][token before], zero above the diagonal in
                                 // its 16 x 16
  float decay[kDim];             // e^G of the last token
  Values values[kDim / 16];      // V; the scan leaves u there, times the column's scale
  uint16_t qd[2][kTokens][64];   // q e^G
  uint16_t a[kTokens][kTokens];  // q k^T with decay, likewise
  uint4 state[kDim / 16][kDim / 16][32];  // before the chunk, times the column's scale
  float back[kDim];                       // by value column: what undoes its scale
};

// Of 16 value columns: no bank is met twice when four lanes read every second token and eight a column, nor
// when lanes read four columns each.
__device__ inline int value_at(unsigned token, unsigned column) {
  const unsigned row = token % 2 * 4 + token % 8 / 2;
  return static_cast<int>((token / 8 * 8 + row) * 16 + ((column / 4 ^ row / 2 % 2 * 2) * 4 + column % 4));
}

// The second half of a gate: rows of d columns, f32, times w [W, d]; w null: there is none.
struct LowRank {
  Rows<const float> x;
  Rows<const bf16> w;
};

struct Chunks {
  Rows<const float> raw;     // [T, 3 W]: what the conv reads, or q, k, v after it when there are no taps
  const float* taps;         // [3 W, 4], or null
  Rows<const float> forget;  // [T, W]; f itself when there is no f_b
  LowRank f_b;               // [W, d] and its input
  Rows<const float> beta;    // [T, H] before the sigmoid
  const float *a_exp, *dt_bias;
  float lower_bound;
  kernels::KdaState state;
  LowRank g_b;        // of the gated norm
  const float* norm;  // [d], its weight, or null: out is o itself
  float eps;
  ActivationRows out;  // [T, W]
  int32_t heads;
  Record* records;  // [places, H]
  __device__ int64_t width() const { return int64_t{heads} * kDim; }
};

// Records of a sequence lie one after the other from a place that its own row tells, with gaps between
// sequences.
__host__ __device__ inline int64_t places(int64_t rows, int64_t sequences) {
  return rows / kTokens + sequences;
}
__device__ inline int32_t first_place(const StepView& step, int32_t sequence) {
  return (step.sequence[sequence].row - step.decode_rows) / kTokens + sequence - step.decode_sequences;
}

struct Place {
  int32_t sequence;
  int32_t first;  // of the sequence's rows in this step, the chunk's first token
  int32_t live;   // tokens that are there; 0: no chunk lies here
};
__device__ inline Place find(const StepView& step, int32_t place) {
  int32_t low = step.decode_sequences, high = step.sequences - 1;
  while (low < high) {  // the last sequence that begins at or before the place
    const int32_t middle = (low + high + 1) / 2;
    if (first_place(step, middle) <= place) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const int32_t first = (place - first_place(step, low)) * kTokens;
  return {low, first, max(0, min(kTokens, step.sequence[low].rows - first))};
}

// Element (row, column) of a tile with 64 columns.
__device__ inline int swizzled(unsigned row, unsigned column) {
  return static_cast<int>(row * 64 + ((column / 8 ^ row % 8) * 8 + column % 8));
}
// 16 rows of tiles, from a whole eight on, as a left operand, columns [16 step, 16 step + 16).
__device__ inline void load_left(uint32_t (&m)[4], const uint16_t* tiles, int first, int step, int lane) {
  const unsigned piece = 2 * step + lane / 16;
  load_tiles(m, tiles + swizzled(lane % 16, piece % 8 * 8) + piece / 8 * kTokens * 64 + first * 64);
}
__device__ inline uint32_t pack(float low, float high) {
  const __half2_raw two = __floats2half2_rn(low, high);
  uint32_t bits;
  __builtin_memcpy(&bits, &two, sizeof bits);
  return bits;
}
__device__ inline float2 unpack(uint32_t bits) {
  __half2_raw two;
  __builtin_memcpy(&two, &bits, sizeof bits);
  return __half22float2(two);
}

// Low-rank inputs of a chunk's tokens as two bf16 parts that hold 16 bits, tiles [part][2][64][64]. Eight
// columns of a row, which a lane reads at once of a weight, are one pair of each of four pieces: the order of
// k is free as long as both sides agree.
constexpr int kPart = kTokens * kDim;
template <int kThreads>
__device__ inline void stage_low(const Rows<const float>& x, int64_t row, int live, uint16_t* tiles) {
  constexpr int kStride = kThreads / 32;  // rows between those of a warp: whole eights
  static_assert(kStride % 8 == 0);
  const unsigned warp = threadIdx.x / 32, four = threadIdx.x % 32, piece = four / 8 * 4 + four % 2 * 2;
  uint16_t* to[2];
#pragma unroll
  for (int pair = 0; pair < 2; ++pair)
    to[pair] = tiles + piece / 8 * kTokens * 64 + swizzled(warp, (piece % 8 + pair) * 8 + four / 2 % 4 * 2);
#pragma unroll
  for (int i = 0; i < kTokens / kStride; ++i) {
    const int r = static_cast<int>(warp) + i * kStride;
    float4 v{0, 0, 0, 0};
    if (r < live) v = *reinterpret_cast<const float4*>(x(row + r) + 4 * four);
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const float first = pair == 0 ? v.x : v.z, second = pair == 0 ? v.y : v.w;
      uint16_t* at = to[pair] + i * kStride * 64;
      *reinterpret_cast<uint32_t*>(at) = upper_halves(first, second);
      *reinterpret_cast<uint32_t*>(at + kPart) = two_bf16(rest_of(first), rest_of(second));
    }
  }
}
// d[token tile][8 columns] of 16 rows of w from `first` on; lane (row, quad) holds tokens row and row + 8 of
// a tile, and of 8 columns 2 quad and 2 quad + 1.
__device__ inline void multiply_low(const uint16_t* tiles, const Rows<const bf16>& w, int64_t first,
                                    float (&d)[kTokens / 16][2][4]) {
  const int lane = threadIdx.x % 32;
  const bf16* from = w(first + lane / 4) + lane % 4 * 8;
#pragma unroll 1
  for (int group = 0; group < kDim / 32; ++group) {
    const uint4 b[2] = {*reinterpret_cast<const uint4*>(from + 32 * group),
                        *reinterpret_cast<const uint4*>(from + 8 * w.stride + 32 * group)};
#pragma unroll
    for (int i = 0; i < 4 * kTokens / 16; ++i) {
      const int part = i / 2 % 2, half = i % 2, tile = i / 4;
      uint32_t left[4];
      load_left(left, tiles + part * kPart, 16 * tile, 2 * group + half, lane);
#pragma unroll
      for (int j = 0; j < 2; ++j) mma_bf16(d[tile][j], left, half ? b[j].z : b[j].x, half ? b[j].w : b[j].y);
    }
  }
}

void prepare_chunks(cudaStream_t stream, const StepView& step, const Chunks& a);  // chunk_prep.cu
void scan_chunks(cudaStream_t stream, const StepView& step, const Chunks& a);     // chunk_scan.cu

}  // namespace godwit::sm90::chunk
