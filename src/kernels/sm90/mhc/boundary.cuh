// What the two forms of the boundary share: its arguments and Sinkhorn.
#pragma once

#include "kernels/sm90/device/common.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {

struct Boundary {
  static constexpr int kStreams = 4, kMapping = 2 * kStreams + kStreams * kStreams;
  static constexpr int kMix = kStreams + kStreams * kStreams;
  static constexpr int kMaxWidth = 4096;  // D

  bool expands;
  Rows<const float> old_mix, y;
  Rows<float> streams;  // [T, 4 D]
  const bf16* fn;       // [24, 4 D], rows fn_stride apart
  int64_t fn_stride;
  const float *base, *scale;
  float norm_eps, hc_eps;
  int32_t iterations, width;
  int64_t rows;
  Rows<float> mix, x;
  const float* norm;  // null: x is written, else its normed rows are
  ActivationRows normed;
};

Boundary boundary_of(const kernels::MhcExpand* expand, const kernels::MhcCollapse& a, const float* norm,
                     const View& normed);

// c: logits in, C out. One thread holds all of it: a step is four sums and four reciprocals deep.
__device__ inline void sinkhorn(float (&c)[Boundary::kStreams][Boundary::kStreams], float eps,
                                int32_t iterations) {
  constexpr int kStreams = Boundary::kStreams;
#pragma unroll
  for (int i = 0; i < kStreams; ++i) {
    const float largest = fmaxf(fmaxf(c[i][0], c[i][1]), fmaxf(c[i][2], c[i][3]));
#pragma unroll
    for (int j = 0; j < kStreams; ++j) c[i][j] = fast_exp(c[i][j] - largest);
    const float by = fast_reciprocal((c[i][0] + c[i][1]) + (c[i][2] + c[i][3]));
#pragma unroll
    for (int j = 0; j < kStreams; ++j) c[i][j] = fmaf(c[i][j], by, eps);
  }
  const auto column_step = [&] {
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      const float by = fast_reciprocal(((c[0][j] + c[1][j]) + (c[2][j] + c[3][j])) + eps);
#pragma unroll
      for (int i = 0; i < kStreams; ++i) c[i][j] *= by;
    }
  };
  column_step();
#pragma unroll 1
  for (int32_t step = 1; step < iterations; ++step) {
#pragma unroll
    for (int i = 0; i < kStreams; ++i) {
      const float by = fast_reciprocal(((c[i][0] + c[i][1]) + (c[i][2] + c[i][3])) + eps);
#pragma unroll
      for (int j = 0; j < kStreams; ++j) c[i][j] *= by;
    }
    column_step();
  }
}

}  // namespace godwit::sm90
