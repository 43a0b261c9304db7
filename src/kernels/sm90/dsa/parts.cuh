// f32 rows as tensor-core operands without losing a bit: three bf16 parts in the order of an mma A fragment.
#pragma once

#include "kernels/sm90/device/pipeline.cuh"

namespace godwit::sm90 {

// One lane's A registers of a 16 x 16 tile, for the three parts of a value, largest first.
struct alignas(16) Parts {
  uint32_t a[3][4];
};

// Of what a lane holds, two neighbouring columns each: rows g and g + 8 of columns 2 t, then of columns 2 t
// + 8.
__device__ inline Parts split_lane(const float2 (&values)[4]) {
  Parts p;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    float2 v = values[r];
#pragma unroll
    for (int part = 0; part < 3; ++part) {
      p.a[part][r] = upper_halves(v.x, v.y);
      v.x = rest_of(v.x), v.y = rest_of(v.y);
    }
  }
  return p;
}

}  // namespace godwit::sm90
