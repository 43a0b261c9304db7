// What every test of an op stands on: seeded inputs, poisoned outputs, one Side per backend, comparison.
// Nothing here touches a backend's memory except through kernels::Memory, so a device backend is tested
// alike.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace godwit::ops_test {

using kernels::Ops;

struct Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> v;  // [rows, cols]

  Matrix() = default;
  Matrix(int64_t r, int64_t c) : rows(r), cols(c), v(static_cast<size_t>(r * c)) {}
  float& at(int64_t r, int64_t c) { return v[static_cast<size_t>(r * cols + c)]; }
  float at(int64_t r, int64_t c) const { return v[static_cast<size_t>(r * cols + c)]; }
};

using Rows = std::vector<int64_t>;
Rows all_rows(int64_t n);
Matrix pick(const Matrix& m, const Rows& rows);
Matrix beside(const std::vector<Matrix>& parts);  // columns of equally many rows

// About normal, a pure function of its keys: a value never depends on what was generated before it.
float noise(uint64_t a, uint64_t b = 0, uint64_t c = 0);
Matrix random_matrix(uint64_t seed, int64_t rows, int64_t cols, float scale = 1, float offset = 0);

// A backend with what a test put into its memory; all of it is released at the end.
class Side {
 public:
  explicit Side(Ops& backend) : ops(backend) {}
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;
  ~Side();

  Ops& ops;

  // `bytes` of poison: NaN as f32 or bf16.
  std::byte* raw(int64_t bytes);
  // A matrix with `gap` poisoned elements after each row.
  View input(const Matrix& m, DType dtype = DType::f32, int64_t gap = 0);
  View output(int64_t rows, int64_t cols, DType dtype = DType::f32, int64_t gap = 0);
  // [out, in]; f8_e4m3 weights get codes over the whole range and random block scales.
  Weight weight(uint64_t seed, int64_t out, int64_t in, DType dtype);
  const float* floats(const std::vector<float>& v) { return upload(v); }
  const int32_t* ints(const std::vector<int32_t>& v) { return upload(v); }

  template <class T>
  T* upload(const std::vector<T>& v) {
    const auto bytes = static_cast<int64_t>(v.size() * sizeof(T));
    std::byte* p = raw(bytes);
    ops.memory().upload(p, v.data(), bytes);
    return static_cast<T*>(static_cast<void*>(p));
  }
  template <class T>
  std::vector<T> download(const void* p, int64_t count) {
    std::vector<T> v(static_cast<size_t>(count));
    ops.memory().download(v.data(), p, count * static_cast<int64_t>(sizeof(T)));
    return v;
  }
  // Values of a view (i32 too); fails when the gap between its rows was written.
  Matrix read(const View& v);

 private:
  std::vector<void*> owned_;
};

// Relative L2 error and largest error relative to the largest value of the expectation. Values below 1e-30
// count as zero.
struct Tolerance {
  double l2 = 0;
  double max = 0;
};
constexpr Tolerance kExact{0, 0};
// f32 accumulation of up to a few thousand products.
constexpr Tolerance kF32{2e-6, 4e-6};

void expect_close(const Matrix& got, const Matrix& expected, Tolerance tolerance, const std::string& what);
void expect_same_bits(const Matrix& got, const Matrix& expected, const std::string& what);

// The backends under test and the oracle, prepared once for every shape of these tests. The CPU backend's
// scratch is full of NaN whenever an op starts; GODWIT_TEST_TARGET = ssse3 | avx2 | avx512 makes it take
// these kernels instead of the machine's best.
Ops& oracle();
Ops& backend(const std::string& name);
std::vector<std::string> backends();             // compared with the oracle
std::vector<std::string> backends_and_oracle();  // held to properties and known answers

// A row-wise op: computes the given rows of a case on a side. Checks against the oracle, and that no row's
// bits depend on the rows beside it: every row runs again in another place of two other batches.
using RowOp = std::function<Matrix(Side&, const Rows&)>;
void check_row_op(const std::string& name, int64_t rows, const RowOp& op, Tolerance tolerance,
                  const std::string& what);
#ifdef GODWIT_CUDA_EMULATED
constexpr int64_t kRowCounts[] = {0, 1, 9, 65};  // each thread of a kernel costs the emulation its turns
#else
constexpr int64_t kRowCounts[] = {0, 1, 2, 3, 5, 63, 64, 65, 127, 129};
#endif

class Backends : public testing::TestWithParam<std::string> {};
class EveryBackend : public testing::TestWithParam<std::string> {};

}  // namespace godwit::ops_test
