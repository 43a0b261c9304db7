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

// Launches a kernel that may start while the one before still runs; it must call wait_for_previous(). Blocks
// in clusters of `cluster`.
template <class... Parameters, class... Arguments>
void launch_clusters(cudaStream_t stream, const char* op, unsigned cluster, unsigned blocks, unsigned threads,
                     size_t shared, void (*kernel)(Parameters...), Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {cluster, 1, 1};
  config.attrs = attributes;
  config.numAttrs = cluster > 1 ? 2 : 1;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(std::forward<Arguments>(arguments))...),
        op);
}
// How many such clusters run at the same time.
template <class... Parameters>
int64_t most_clusters(const char* op, unsigned cluster, unsigned threads, size_t shared,
                      void (*kernel)(Parameters...)) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(cluster);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {cluster, 1, 1};
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  check(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config), op);
  if (clusters < 1) fatal(op, cudaErrorInvalidConfiguration);
  return clusters;
}
template <class... Parameters, class... Arguments>
void launch_dependent(cudaStream_t stream, const char* op, unsigned blocks, unsigned threads, size_t shared,
                      void (*kernel)(Parameters...), Arguments&&... arguments) {
  launch_clusters(stream, op, 1, blocks, threads, shared, kernel, std::forward<Arguments>(arguments)...);
}

}  // namespace godwit::sm90
