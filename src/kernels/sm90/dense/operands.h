// Launches around the products of dense/library.h.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/sm90/dense/product.h"

namespace godwit::sm90 {

// Rows as e4m3 codes. The scales of whole multiples of kDenseRows rows, then of the rest: each in the order
// that the library reads, groups first.
struct DenseCodes {
  uint8_t* codes = nullptr;      // [padded rows, K]
  float* scales = nullptr;       // [K / 128, whole rows]
  float* rest_scales = nullptr;  // [K / 128, kDenseRows]
};

// x f32 or bf16, 16-byte aligned rows; K is a multiple of 8, of 128 for codes. Rows up to a multiple of
// kDenseRows are written, those past x's as zeros.
void narrow_rows(cudaStream_t stream, const View& x, void* to);  // bf16 [padded rows, K]
void encode_rows(cudaStream_t stream, const View& x, const DenseCodes& to);
// The same of silu(min(gate, limit)) * clamp(up, -limit, limit), both bf16 and packed.
void encode_swiglu(cudaStream_t stream, const View& gate, const View& up, float limit, const DenseCodes& to);
// Products to where the op wants them: f32 rows, or bf16 [rows, to.cols] widened.
void copy_rows(cudaStream_t stream, const float* from, int64_t stride, const View& to);
void widen_rows(cudaStream_t stream, const void* from, const View& to);

}  // namespace godwit::sm90
