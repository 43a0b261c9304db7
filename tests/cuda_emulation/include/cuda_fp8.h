// Stands in for CUDA's FP8 and f16 headers: e4m3 only, whose values f16 holds exactly.
#pragma once

#include "tensor/dtype.h"

struct float2 {
  float x, y;
};
struct __half {
  _Float16 value;
};
struct __half2_raw {
  uint16_t x, y;  // bits
};
struct __half2 {
  _Float16 x, y;
  __half2(_Float16 first, _Float16 second) : x(first), y(second) {}
  __half2(const __half2_raw& r)
      : x(__builtin_bit_cast(_Float16, r.x)), y(__builtin_bit_cast(_Float16, r.y)) {}
  operator __half2_raw() const { return {__builtin_bit_cast(uint16_t, x), __builtin_bit_cast(uint16_t, y)}; }
};
struct __half_raw {
  uint16_t x;
  explicit operator __half() const { return {__builtin_bit_cast(_Float16, x)}; }
};
enum __nv_fp8_interpretation_t { __NV_E4M3 };
enum __nv_saturation_t { __NV_SATFINITE };
using __nv_fp8_storage_t = uint8_t;
using __nv_fp8x2_storage_t = uint16_t;

inline float __half2float(__half x) {
  return static_cast<float>(x.value);
}
inline __half __float2half_rn(float x) {
  return {static_cast<_Float16>(x)};
}
inline unsigned short __half_as_ushort(__half x) {
  return __builtin_bit_cast(unsigned short, x.value);
}
inline float2 __half22float2(__half2 v) {
  return {static_cast<float>(v.x), static_cast<float>(v.y)};
}
inline __half2 __floats2half2_rn(float first, float second) {
  return {static_cast<_Float16>(first), static_cast<_Float16>(second)};
}
inline __half_raw __nv_cvt_fp8_to_halfraw(uint8_t code, __nv_fp8_interpretation_t) {
  return {__builtin_bit_cast(uint16_t, static_cast<_Float16>(godwit::to_float(godwit::f8_e4m3{code})))};
}
inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(uint16_t codes, __nv_fp8_interpretation_t kind) {
  return {__nv_cvt_fp8_to_halfraw(static_cast<uint8_t>(codes & 0xff), kind).x,
          __nv_cvt_fp8_to_halfraw(static_cast<uint8_t>(codes >> 8), kind).x};
}
inline uint8_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t, __nv_fp8_interpretation_t) {
  return godwit::to_e4m3(x).bits;
}
inline uint16_t __nv_cvt_float2_to_fp8x2(float2 v, __nv_saturation_t, __nv_fp8_interpretation_t) {
  return static_cast<uint16_t>(godwit::to_e4m3(v.x).bits | godwit::to_e4m3(v.y).bits << 8);
}
