// y = W x on the CPU: one kernel for every number of rows, so that decode and prefill rows get the same bits.
// Order of one output element, a function of K and the vector width only: lane l sums k = l, l + lanes, …
// by fused multiply-adds, then the lanes are added in a fixed tree.
#pragma once

#include <span>

#include "kernels/cpu/pool.h"
#include "kernels/ops/dense.h"
#include "tensor/tensor.h"

namespace godwit::cpu {

constexpr int64_t kPanelFloats = 16 * 1024;   // widened weights of one column panel
constexpr int64_t kQuantFloats = 192 * 1024;  // one task's rows after the FP8 quantiser
constexpr int64_t kRowBlock = 192;            // rows of one task
constexpr int64_t kLinearFloats = kPanelFloats + kQuantFloats;

// What linear_block needs per thread.
struct LinearScratch {
  float* panel = nullptr;  // [kPanelFloats]
  float* quant = nullptr;  // [kQuantFloats]
};
inline LinearScratch linear_scratch(float* thread_scratch) {
  return {thread_scratch, thread_scratch + kPanelFloats};
}

// What an FP8 product reads instead of x [rows, columns]: e4m3 codes times their group scale (design §6,
// kernels/quantize.h), in f32 at `out` [rows, columns]. Returns `out`; for other weights returns x itself.
struct Rows {
  const float* data = nullptr;  // [rows, columns]
  int64_t stride = 0;           // floats
};
Rows quantised_rows(const Weight& w, Rows x, int64_t rows, float* out);

// out[t, n] for t < rows and first <= n < last, on the calling thread. x comes from quantised_rows.
void linear_block(const Weight& w, Rows x, int64_t rows, int64_t first, int64_t last, float* out,
                  int64_t out_stride, float* panel);

// All products of independent linears in one sharing of the pool. `scratch(thread)` is [kLinearFloats].
void linear_many(Pool& pool, std::span<const kernels::Linear> linears, float* const* thread_scratch);

// Bytes of weight a matrix holds, for cost estimates.
inline int64_t weight_bytes(const Weight& w) {
  return w.out() * w.in() * size_of(w.data.dtype);
}

}  // namespace godwit::cpu
