// The chunk form of KDA (kernels spec §2.4, §4.4): what its two kernels share. A chunk is 64 tokens on the
// absolute grid; what does not depend on the state before it is prepared for all chunks at once, as a record
// that the scan reads.
#pragma once

#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/kda/slot.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90::chunk {

constexpr int kTokens = 64, kDim = 128, kSub = 16;

// f16 in tiles with rows of 64 values, whose 16-byte pieces are exchanged so that ldmatrix meets no bank
// twice. G is the sum of log decays from the start of the chunk to a token, that token included.
struct alignas(16) Record {
  uint16_t kd[2][kTokens][64];   // k e^G, [half of d][token][d]
  uint16_t qd[2][kTokens][64];   // q e^G
  uint16_t kr[2][kTokens][64];   // k e^(G of the last token - G)
  uint16_t t[kTokens][kTokens];  // -(I + L)^-1 diag(beta), [token][token before], zero above the diagonal
  uint16_t a[kTokens][kTokens];  // q k^T with decay, zero above the diagonal
  float decay[kDim];             // e^G of the last token
};

struct Chunks {
  Rows<const float> qkv;     // [T, 3 W] after conv
  Rows<const float> forget;  // [T, W]
  Rows<const float> beta;    // [T, H] before the sigmoid
  const float *a_exp, *dt_bias;
  float lower_bound;
  kernels::KdaState state;
  Rows<float> out;  // [T, W]
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

// Element (row, column) of a tile with 64 columns.
__device__ inline int swizzled(int row, int column) {
  return row * 64 + ((column / 8 ^ row % 8) * 8 + column % 8);
}
__device__ inline uint32_t pack(float low, float high) {
  return __half_as_ushort(__float2half_rn(low)) |
         static_cast<uint32_t>(__half_as_ushort(__float2half_rn(high))) << 16;
}
__device__ inline __half2 two_f16(uint32_t bits) {
  const __half2_raw raw{static_cast<unsigned short>(bits & 0xffffu), static_cast<unsigned short>(bits >> 16)};
  return raw;
}
__device__ inline float2 unpack(uint32_t bits) {
  return __half22float2(two_f16(bits));
}

void prepare_chunks(cudaStream_t stream, const StepView& step, const Chunks& a);  // chunk_prep.cu

}  // namespace godwit::sm90::chunk
