// What every kernel folder may use: strided rows, values of any element type, sums in a fixed order.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "kernels/sm90/check.h"
#include "kernels/sm90/device/hardware.cuh"
#include "kernels/step.h"
#include "tensor/tensor.h"

namespace godwit::sm90 {

// Rows of a View on the device.
template <class T>
struct Rows {
  T* data;
  int64_t stride;
  __device__ T* operator()(int64_t r) const { return data + r * stride; }
};
template <class T>
Rows<T> rows_of(const View& v) {
  return {static_cast<T*>(v.data), v.stride};
}

// View::row on the device, for kernels that look at the type themselves.
template <class T>
__device__ inline const T* row_of(const View& v, int64_t r) {
  return static_cast<const T*>(v.data) + r * v.stride;
}

__device__ inline float load(const float* p) {
  return *p;
}
__device__ inline float load(const bf16* p) {
  return __uint_as_float(static_cast<uint32_t>(p->bits) << 16);
}
__device__ inline float load(const f8_e4m3* p) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(p->bits, __NV_E4M3)));
}
// Element i of an array of f32 or bf16.
__device__ inline float load(const void* base, DType type, int64_t i) {
  return type == DType::f32 ? static_cast<const float*>(base)[i] : load(static_cast<const bf16*>(base) + i);
}
__device__ inline void store(void* base, DType type, int64_t i, float value) {
  if (type == DType::f32) {
    static_cast<float*>(base)[i] = value;
  } else {
    static_cast<__nv_bfloat16*>(base)[i] = __float2bfloat16_rn(value);
  }
}
__device__ inline float rounded_to(DType type, float value) {
  return type == DType::f32 ? value : __bfloat162float(__float2bfloat16_rn(value));
}

// Two values rounded to bf16.
__device__ inline uint32_t two_bf16(float low, float high) {
  const __nv_bfloat162_raw two = __floats2bfloat162_rn(low, high);
  uint32_t bits;
  __builtin_memcpy(&bits, &two, sizeof bits);
  return bits;
}
__device__ inline float low_half(uint32_t two) {
  return __uint_as_float(two << 16);
}
__device__ inline float high_half(uint32_t two) {
  return __uint_as_float(two & 0xffff0000u);
}

// Rows of activations to write, f32 or bf16. put() returns what a reader will find.
struct ActivationRows {
  void* data;
  int64_t stride;
  bool narrow;

  __device__ float put(int64_t r, int64_t c, float v) const {
    const int64_t at = r * stride + c;
    if (!narrow) return static_cast<float*>(data)[at] = v;
    const __nv_bfloat16 rounded = __float2bfloat16_rn(v);
    static_cast<__nv_bfloat16*>(data)[at] = rounded;
    return __bfloat162float(rounded);
  }
  // Columns [c, c + 4), on a boundary of four elements.
  __device__ float4 put(int64_t r, int64_t c, float4 v) const {
    const int64_t at = r * stride + c;
    if (!narrow) return *reinterpret_cast<float4*>(static_cast<float*>(data) + at) = v;
    const uint2 rounded{two_bf16(v.x, v.y), two_bf16(v.z, v.w)};
    *reinterpret_cast<uint2*>(static_cast<bf16*>(data) + at) = rounded;
    return {low_half(rounded.x), high_half(rounded.x), low_half(rounded.y), high_half(rounded.y)};
  }
};
inline ActivationRows activation_rows(const View& v) {
  return {v.data, v.stride, v.dtype == DType::bf16};
}

__device__ inline float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}
// The same to about 1e-6, in a tenth of the instructions.
__device__ inline float fast_exp(float x) {
  return fast_exp2(x * 1.44269504f);
}
__device__ inline float fast_sigmoid(float x) {
  return fast_reciprocal(1.0f + fast_exp(-x));
}
__device__ inline float silu(float x) {
  return x * sigmoid(x);
}
// silu(min(gate, limit)) * clamp(up, -limit, limit), glm5_next spec §11.1; NaN stays NaN.
__device__ inline float clamped_swiglu(float gate, float up, float limit) {
  gate = gate > limit ? limit : gate;
  up = up > limit ? limit : up < -limit ? -limit : up;
  return silu(gate) * up;
}

// Every lane gets the same bits: the butterfly adds the same pairs in either order.
__device__ inline float warp_sum(float v) {
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}

// The sum over a block of kThreads, warps in ascending order; every thread gets it. All threads must call.
template <int kThreads>
__device__ float block_sum(float v) {
  __shared__ float partial[kThreads / 32];
  v = warp_sum(v);
  __syncthreads();  // an earlier call's reads are done
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
  __syncthreads();
  float sum = 0;
  for (int w = 0; w < kThreads / 32; ++w) sum += partial[w];
  return sum;
}

// Position of row t in its request's token sequence.
__device__ inline int64_t position_of(const kernels::Sequence& s, int64_t t) {
  return s.first + (t - s.row);
}

// The total order of a selection's values: NaN ranks below every value, -0 equals 0, and 0 is below every
// candidate.
__device__ inline uint32_t order_of(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0f);
  return isnan(value) ? 1u : (bits & 0x80000000u) ? ~bits : bits | 0x80000000u;
}
// One word of it: higher value first, then the lower index.
__device__ inline uint64_t candidate(float value, int64_t index) {
  return static_cast<uint64_t>(order_of(value)) << 32 | (0xffffffffu - static_cast<uint32_t>(index));
}
__device__ inline int32_t index_of(uint64_t word) {
  return static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(word));
}

// Blocks for `work` items; lengths only ever go into grid.x, whose limit is 2^31 - 1.
inline unsigned blocks_for(int64_t work, int64_t per_block) {
  const int64_t blocks = (work + per_block - 1) / per_block;
  if (blocks >= (int64_t{1} << 31)) fatal("grid size", cudaErrorInvalidConfiguration);
  return static_cast<unsigned>(blocks);
}

}  // namespace godwit::sm90
