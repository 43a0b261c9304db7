// The one way a CUDA call fails (design §6): an exception with the name of the op and CUDA's words, which
// ends loading, or the engine by its fatal path. An error after prepare() leaves the caches of every request
// in doubt, so nothing is retried.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>

namespace godwit::sm90 {

class DeviceFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] void fatal(const char* op, cudaError_t error);

inline void check(cudaError_t error, const char* op) {
  if (error != cudaSuccess) fatal(op, error);
}

}  // namespace godwit::sm90
