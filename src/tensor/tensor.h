// View: rows of elements somewhere in a backend's memory. Owns nothing. Buffer: owned, 64-byte aligned host
// memory.
#pragma once

#include <cstddef>
#include <memory>

#include "base/assert.h"
#include "tensor/dtype.h"

namespace godwit {

// A matrix of `rows` rows of `cols` elements, rows `stride` elements apart. `data` belongs to the backend
// that made it and is only dereferenced by that backend's ops.
struct View {
  void* data = nullptr;
  DType dtype = DType::f32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements

  template <class T>
  T* row(int64_t r) const {
    return static_cast<T*>(data) + r * stride;
  }
  bool empty() const { return rows == 0 || cols == 0; }
  View row_range(int64_t first, int64_t count) const {
    View v = *this;
    v.data = static_cast<std::byte*>(data) + first * stride * size_of(dtype);
    v.rows = count;
    return v;
  }
  View col_range(int64_t first, int64_t count) const {
    View v = *this;
    v.data = static_cast<std::byte*>(data) + first * size_of(dtype);
    v.cols = count;
    return v;
  }
  // The same memory as rows of another width; needs packed rows.
  View reshape(int64_t new_rows, int64_t new_cols) const {
    GODWIT_ASSERT(stride == cols && rows * cols == new_rows * new_cols);
    return {data, dtype, new_rows, new_cols, new_cols};
  }
};

inline View make_view(void* data, DType dtype, int64_t rows, int64_t cols) {
  return {data, dtype, rows, cols, cols};
}

// A weight matrix y = W x, [rows = out, cols = in]. F8_E4M3 weights carry block scales; the value of an
// element is e4m3 * scales[n / 128][k / 128] (glm5_next spec §3.4: multiplied, in spite of the name
// weight_scale_inv).
struct Weight {
  View data;                      // [out, in] bf16 | f32 | f8_e4m3
  const float* scales = nullptr;  // [ceil(out/128), ceil(in/128)], f8_e4m3 only
  int64_t scale_stride = 0;       // floats between scale rows

  int64_t out() const { return data.rows; }
  int64_t in() const { return data.cols; }
  bool empty() const { return data.data == nullptr; }
};

constexpr int64_t kFp8Block = 128;

// 64-byte aligned host memory whose pages are really there: without touching them a machine hands out more
// than it has and takes the process down later (design §8). Contents undefined. Throws std::bad_alloc. Free
// with std::free.
void* allocate_present(size_t bytes);

// Owned host memory. Uninitialised on purpose: ops are tested with poisoned buffers.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes);

  void* data() const { return memory_.get(); }
  template <class T>
  T* as() const {
    return static_cast<T*>(memory_.get());
  }
  size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* p) const;
  };
  std::unique_ptr<void, Free> memory_;
  size_t bytes_ = 0;
};

}  // namespace godwit
