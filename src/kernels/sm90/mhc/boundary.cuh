// What the two forms of the boundary share: its arguments, and the launch that ends both.
#pragma once

#include "kernels/sm90/device/common.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {

struct Boundary {
  static constexpr int kStreams = 4, kMapping = 2 * kStreams + kStreams * kStreams;
  static constexpr int kMix = kStreams + kStreams * kStreams;
  static constexpr int kPartial = 32;  // floats of a row and slice: the mapping, then the sum of squares

  bool expands;
  Rows<const float> old_mix, y;
  Rows<float> streams;  // [T, 4 D]
  const bf16* fn;       // [24, 4 D], rows fn_stride apart
  int64_t fn_stride;
  const float *base, *scale;
  float norm_eps, hc_eps;
  int32_t iterations, width;
  int64_t rows;
  int32_t slices;  // of columns, in `partial`
  float* partial;  // [T, slices, kPartial]
  Rows<float> mix, x;
  const float* norm;  // null: x is written, else its normed rows are
  ActivationRows normed;
  Quantized codes;  // of normed; null: not wanted
};

// `slices` and `codes` are left to the form.
Boundary boundary_of(const kernels::MhcExpand* expand, const kernels::MhcCollapse& a, const float* norm,
                     const View& normed, float* partial);
// Adds the shares up, maps, runs Sinkhorn, collapses, normalises and quantises: a block a row.
void finish_boundary(cudaStream_t stream, const Boundary& b);

}  // namespace godwit::sm90
