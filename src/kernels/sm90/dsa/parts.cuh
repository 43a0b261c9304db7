// f32 rows as tensor-core operands without losing a bit: three bf16 parts in the order of an mma A fragment.
#pragma once

#include "kernels/sm90/device/pipeline.cuh"

namespace godwit::sm90 {

// One lane's A registers of a 16 x 16 tile, for the three parts of a value, largest first.
struct alignas(16) Parts {
  uint32_t a[3][4];
};

// value(row, column) of the tile for each of the eight values a lane holds.
template <class Value>
__device__ inline Parts split(Value value) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  Parts p;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int row = g + 8 * (r % 2), column = 2 * t + 8 * (r / 2);
    float first = value(row, column), second = value(row, column + 1);
#pragma unroll
    for (int part = 0; part < 3; ++part) {
      p.a[part][r] = upper_halves(first, second);
      first = rest_of(first), second = rest_of(second);
    }
  }
  return p;
}

// large += a[0] b, small += (a[1] + a[2]) b: what is small is added up by itself.
__device__ inline void multiply_parts(float (&large)[4], float (&small)[4], const Parts& a, uint32_t b0,
                                      uint32_t b1) {
  mma_bf16(small, a.a[2], b0, b1);
  mma_bf16(small, a.a[1], b0, b1);
  mma_bf16(large, a.a[0], b0, b1);
}

}  // namespace godwit::sm90
