// Elements of views as doubles, whatever their type, and the products every file of the reference uses.
#pragma once

#include <cmath>
#include <vector>

#include "base/assert.h"
#include "kernels/step.h"
#include "tensor/tensor.h"

namespace godwit::kernels::reference {

inline double load(const void* base, DType type, int64_t i) {
  switch (type) {
    case DType::f32:
      return static_cast<const float*>(base)[i];
    case DType::bf16:
      return to_float(static_cast<const bf16*>(base)[i]);
    case DType::f8_e4m3:
      return to_float(static_cast<const f8_e4m3*>(base)[i]);
    default:
      GODWIT_ASSERT(!"element type has no real value");
  }
  return 0;
}

inline void store(void* base, DType type, int64_t i, double value) {
  const auto rounded = static_cast<float>(value);
  if (type == DType::f32) {
    static_cast<float*>(base)[i] = rounded;
  } else {
    GODWIT_ASSERT(type == DType::bf16);
    static_cast<bf16*>(base)[i] = to_bf16(rounded);
  }
}

inline double get(const View& v, int64_t r, int64_t c) {
  return load(v.data, v.dtype, r * v.stride + c);
}
inline void put(const View& v, int64_t r, int64_t c, double value) {
  store(v.data, v.dtype, r * v.stride + c, value);
}

inline std::vector<double> read(const View& v, int64_t r) {
  std::vector<double> row(static_cast<size_t>(v.cols));
  for (int64_t c = 0; c < v.cols; ++c) row[c] = get(v, r, c);
  return row;
}
// Row r of a matrix whose columns are narrower than the view: columns [first, first + count).
inline std::vector<double> read(const View& v, int64_t r, int64_t first, int64_t count) {
  return read(v.col_range(first, count), r);
}
inline void write(const View& v, int64_t r, const std::vector<double>& row) {
  GODWIT_ASSERT(static_cast<int64_t>(row.size()) == v.cols);
  for (int64_t c = 0; c < v.cols; ++c) put(v, r, c, row[c]);
}

inline double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}
inline double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
inline double silu(double x) {
  return x * sigmoid(x);
}

// y = W x for one row of f32 values, FP8 weights as ops/dense.h says; not rounded.
std::vector<double> multiply(const Weight& w, const std::vector<double>& x);

// silu(min(gate, limit)) * clamp(up, -limit, limit), spec §11.1.
double clamped_swiglu(double gate, double up, double limit);

// The position of a row: its sequence's first position plus its place in the sequence.
inline int64_t position_of(const StepView& step, int64_t row) {
  const Sequence& s = step.sequence[step.row_sequence[row]];
  return s.first + (row - s.row);
}

}  // namespace godwit::kernels::reference
