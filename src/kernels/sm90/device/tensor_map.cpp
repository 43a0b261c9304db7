#include "kernels/sm90/device/tensor_map.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>

#include "kernels/sm90/check.h"

namespace godwit::sm90 {
namespace {

// The driver is not linked: the runtime finds it.
auto encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  constexpr unsigned kVersion = 12000;
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kVersion, cudaEnableDefault,
                                         &found),
        "tensor map");
  if (function == nullptr) fatal("tensor map", cudaErrorNotSupported);
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

}  // namespace

TensorMap tensor_map(const void* base, int64_t rows, int64_t columns, int box_rows) {
  static const auto encode = encoder();
  static_assert(sizeof(CUtensorMap) == sizeof(TensorMap) && alignof(CUtensorMap) == alignof(TensorMap));
  const cuuint64_t size[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t stride[1] = {static_cast<cuuint64_t>(columns)};
  const cuuint32_t box[2] = {128, static_cast<cuuint32_t>(box_rows)}, step[2] = {1, 1};
  CUtensorMap map;
  if (encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void*>(base), size, stride, box, step,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
    fatal("tensor map", cudaErrorInvalidValue);
  TensorMap out;
  std::memcpy(&out, &map, sizeof out);
  return out;
}

}  // namespace godwit::sm90
