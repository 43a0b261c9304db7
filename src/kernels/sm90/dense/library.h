// Products of the prefill family by cuBLASLt (kernels spec §4.7). One algorithm is pinned for each shape,
// whatever the number of rows, so a row's bits do not depend on the rows beside it (experiment X8).
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "base/result.h"
#include "kernels/sm90/dense/product.h"

namespace godwit::sm90 {

// The most that an algorithm may use beside its operands.
constexpr int64_t kDenseWorkspace = int64_t{32} << 20;

class DenseLibrary {
 public:
  virtual ~DenseLibrary() = default;

  // Whether there is an algorithm for products of this shape (pointers are not looked at). The first question
  // about a shape chooses it.
  virtual bool has(const DenseProduct& p) = 0;
  // `rows` is a multiple of kDenseRows; `workspace` has kDenseWorkspace bytes. has() was asked before.
  virtual void multiply(cudaStream_t stream, const DenseProduct& p, int64_t rows, void* workspace) = 0;
};

// Of the current device. ErrorCode::device when the library is not on this machine.
Result<std::unique_ptr<DenseLibrary>> open_dense_library();

}  // namespace godwit::sm90
