// Shared memory of the kernel that prepares chunks.
#pragma once

#include "kernels/sm90/kda/chunk.cuh"

namespace godwit::sm90::chunk::prep {

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

}  // namespace godwit::sm90::chunk::prep
