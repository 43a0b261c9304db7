// One product of the prefill family, as cuBLASLt meets it.
#pragma once

#include "tensor/tensor.h"

namespace godwit::sm90 {

// y[t, b, n] = sum over k of w[b, n, k] x[t, b, k] for `batch` matrices side by side. Pointers lie on 16
// bytes.
struct DenseProduct {
  DType type = DType::bf16;  // of x and w: bf16, or f8_e4m3 with block scales (batch = 1)
  int64_t n = 0, k = 0, batch = 1;
  const void* x = nullptr;          // [rows, batch k], packed
  const float* x_scales = nullptr;  // [k / 128, rows]
  const void* w = nullptr;          // [batch n, k], packed
  const float* w_scales = nullptr;  // [n / 128, k / 128], k a multiple of 512
  void* y = nullptr;                // [rows, batch n]: f32 from bf16 weights, bf16 from f8_e4m3 ones
  int64_t y_stride = 0;             // elements, a multiple of 8
};
// Rows come in multiples of this many: what was seen to give the same bits for every number of rows.
constexpr int64_t kDenseRows = 16;

constexpr int64_t padded_rows(int64_t rows) {
  return (rows + kDenseRows - 1) / kDenseRows * kDenseRows;
}

}  // namespace godwit::sm90
