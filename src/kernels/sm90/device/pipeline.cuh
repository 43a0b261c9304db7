// What streaming kernels share besides hardware.cuh: values in parts, and dependent launches (kernels spec
// §3.3, §3.13).
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/sm90/device/common.cuh"

namespace godwit::sm90 {

// For kernels that have nothing to do before their wait.
__device__ inline void begin_dependent() {
  let_next_start();
  wait_for_previous();
}

// The high halves of two floats as two bf16: truncated, so what rest_of() leaves of each is exact. Three
// parts hold all 24 bits.
__device__ inline uint32_t upper_halves(float first, float second) {
  return __byte_perm(__float_as_uint(first), __float_as_uint(second), 0x7632);
}
__device__ inline float rest_of(float x) {
  return x - __uint_as_float(__float_as_uint(x) & 0xffff0000u);
}

// Launches a kernel that may start while the one before still runs; it must call wait_for_previous().
template <class... Parameters, class... Arguments>
void launch_dependent(cudaStream_t stream, const char* op, unsigned blocks, unsigned threads, size_t shared,
                      void (*kernel)(Parameters...), Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(std::forward<Arguments>(arguments))...),
        op);
}

}  // namespace godwit::sm90
