// The one way a CUDA call fails (design §6): the process ends with the name of the op and CUDA's words. An
// error after prepare() leaves the caches of every request in doubt, so nothing is retried.
#pragma once

#include <cuda_runtime_api.h>

namespace godwit::sm90 {

[[noreturn]] void fatal(const char* op, cudaError_t error);

inline void check(cudaError_t error, const char* op) {
  if (error != cudaSuccess) fatal(op, error);
}

// After each launch: a refused configuration, or an error that an earlier kernel left behind.
inline void check_launch(const char* op) {
  check(cudaGetLastError(), op);
}

}  // namespace godwit::sm90
