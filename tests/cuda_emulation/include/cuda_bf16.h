// Stands in for CUDA's bf16 header; the conversions are those of tensor/dtype.h.
#pragma once

#include "tensor/dtype.h"

struct __nv_bfloat16 {
  godwit::bf16 value;
};
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  return {godwit::to_bf16(x)};
}
inline float __bfloat162float(__nv_bfloat16 x) {
  return godwit::to_float(x.value);
}
struct __nv_bfloat162_raw {
  uint16_t x, y;  // bits
};
inline __nv_bfloat162_raw __floats2bfloat162_rn(float first, float second) {
  return {godwit::to_bf16(first).bits, godwit::to_bf16(second).bits};
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) {
  return x.value.bits;
}
