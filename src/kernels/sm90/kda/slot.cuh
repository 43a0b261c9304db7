// Where a slot keeps the parts of one KDA layer (kernels/ops/kda.h), and the arithmetic of a state update.
#pragma once

#include "kernels/ops/kda.h"
#include "kernels/sm90/device/common.cuh"

namespace godwit::sm90 {

struct KdaSlot {
  kernels::KdaState at;
  std::byte* base;

  __device__ KdaSlot(const kernels::KdaState& state, int32_t slot)
      : at(state), base(state.base + int64_t{slot} * state.slot_stride) {}
  __device__ float* state() const { return floats(at.state_offset); }                  // [H, d, d]
  __device__ void* window() const { return base + at.window_offset; }                  // [taps - 1, 3 W]
  __device__ void* pending_raw() const { return base + at.pending_raw_offset; }        // [pending, 3 W]
  __device__ float* pending_key() const { return floats(at.pending_key_offset); }      // [pending, W]
  __device__ float* pending_delta() const { return floats(at.pending_delta_offset); }  // [pending, W]
  __device__ float* pending_decay() const { return floats(at.pending_decay_offset); }  // [pending, W]

 private:
  __device__ float* floats(int64_t offset) const { return reinterpret_cast<float*>(base + offset); }
};

// S <- e^g S, then S <- S + k u: what kda_step and kda_replay must share bit for bit.
__device__ inline float decay_of(float g) {
  return expf(g);
}
__device__ inline float decayed(float s, float decay) {
  return __fmul_rn(decay, s);
}
__device__ inline float updated(float s, float k, float u) {
  return __fmaf_rn(k, u, s);
}

}  // namespace godwit::sm90
