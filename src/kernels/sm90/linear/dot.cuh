// The dot product of the plain forms. Lane l of a warp takes k = 128 i + 4 l + {0, 1, 2, 3}, i ascending;
// lanes are added by butterfly. The order depends on K only, so a row's bits never depend on the rows beside
// it (design §7).
#pragma once

#include "kernels/sm90/device/common.cuh"

namespace godwit::sm90 {

// One row of activations as weights of type W need it; X is f32 or bf16.
template <class W, class X = float>
struct Activations {
  const X* x;
};
template <class X>
struct Activations<f8_e4m3, X> {
  const uint8_t* codes;  // padded to whole groups of 128
  const float* scales;   // one a group
};

// Four values from k on. kVector: every four of them lie aligned, and K is a multiple of 4.
template <bool kVector>
__device__ inline void load_four(const float* w, int64_t k, int64_t in, float* out) {
  if constexpr (kVector) {
    const float4 v = k < in ? *reinterpret_cast<const float4*>(w + k) : float4{0, 0, 0, 0};
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
  } else {
    for (int j = 0; j < 4; ++j) out[j] = k + j < in ? w[k + j] : 0.0f;
  }
}
template <bool kVector>
__device__ inline void load_four(const bf16* w, int64_t k, int64_t in, float* out) {
  if constexpr (kVector) {
    const uint2 v = k < in ? *reinterpret_cast<const uint2*>(w + k) : uint2{0, 0};
    out[0] = __uint_as_float(v.x << 16), out[1] = __uint_as_float(v.x & 0xffff0000u);
    out[2] = __uint_as_float(v.y << 16), out[3] = __uint_as_float(v.y & 0xffff0000u);
  } else {
    for (int j = 0; j < 4; ++j) out[j] = k + j < in ? load(w + k + j) : 0.0f;
  }
}
__device__ inline void widen_codes(uint32_t codes, float* out) {
  const auto low = static_cast<__nv_fp8x2_storage_t>(codes & 0xffffu);
  const auto high = static_cast<__nv_fp8x2_storage_t>(codes >> 16);
  const float2 a = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(low, __NV_E4M3)));
  const float2 b = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(high, __NV_E4M3)));
  out[0] = a.x, out[1] = a.y, out[2] = b.x, out[3] = b.y;
}
template <bool kVector>
__device__ inline void load_four(const f8_e4m3* w, int64_t k, int64_t in, float* out) {
  if constexpr (kVector) {
    widen_codes(k < in ? *reinterpret_cast<const uint32_t*>(w + k) : 0u, out);
  } else {
    for (int j = 0; j < 4; ++j) out[j] = k + j < in ? load(w + k + j) : 0.0f;
  }
}

// sum[r] = w · row r, complete in every lane. w_scales: the scales of w's block row (f8_e4m3 only).
template <class W, int kRows, bool kVector, class X = float>
__device__ inline void warp_dot(const W* w, const float* w_scales, const Activations<W, X>* rows, int64_t in,
                                float* sum) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < kRows; ++r) sum[r] = 0;
#pragma unroll 4
  for (int64_t first = 0; first < in; first += 128) {
    const int64_t k = first + 4 * lane;
    float a[4], x[4];
    load_four<kVector>(w, k, in, a);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if constexpr (sizeof(W) == 1) {
        const int64_t group = first / kFp8Block;
        widen_codes(*reinterpret_cast<const uint32_t*>(rows[r].codes + k), x);
        float part = a[0] * x[0];
        for (int j = 1; j < 4; ++j) part = fmaf(a[j], x[j], part);
        sum[r] = fmaf(part, w_scales[group] * rows[r].scales[group], sum[r]);
      } else {
        load_four<kVector>(rows[r].x, k, in, x);
        for (int j = 0; j < 4; ++j) sum[r] = fmaf(a[j], x[j], sum[r]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) sum[r] = warp_sum(sum[r]);
}

// Whether rows of `stride` elements of type T can be read four at a time.
template <class T>
__host__ __device__ bool loads_by_four(const void* data, int64_t stride, int64_t columns) {
  return reinterpret_cast<uintptr_t>(data) % (4 * sizeof(T)) == 0 && stride % 4 == 0 && columns % 4 == 0;
}

}  // namespace godwit::sm90
