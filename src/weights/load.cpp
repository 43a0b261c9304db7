#include "weights/load.h"

#include <cstring>

#include "weights/inventory.h"

namespace godwit {
namespace {

// `data` itself, or a copy of it when it is not aligned for its elements.
void* aligned(const TensorRef& tensor, std::vector<Buffer>& copies) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(tensor.data);
  // Views are written through by ops that own their memory only; nobody writes to a mapped weight.
  if (address % static_cast<uintptr_t>(size_of(tensor.dtype)) == 0)
    return const_cast<std::byte*>(tensor.data);
  Buffer& copy = copies.emplace_back(tensor.bytes);
  std::memcpy(copy.data(), tensor.data, tensor.bytes);
  return copy.data();
}

View matrix(const TensorRef& tensor, std::vector<Buffer>& copies) {
  const int64_t rows = tensor.shape.empty() ? 1 : tensor.shape[0];
  const int64_t columns = rows == 0 ? 0 : tensor.elements() / rows;
  return make_view(aligned(tensor, copies), tensor.dtype, rows, columns);
}

Error missing(std::string_view name) {
  return make_error(ErrorCode::data_refused, std::string(name), "tensor {} is missing from the checkpoint",
                    name);
}

}  // namespace

Buffer load_f32(const TensorRef& tensor) {
  GODWIT_ASSERT(tensor.dtype == DType::f32 || tensor.dtype == DType::bf16);
  const int64_t count = tensor.elements();
  Buffer out(static_cast<size_t>(count) * sizeof(float));
  if (tensor.dtype == DType::f32) {
    std::memcpy(out.data(), tensor.data, out.bytes());
    return out;
  }
  for (int64_t i = 0; i < count; ++i) {
    bf16 value;
    std::memcpy(&value, tensor.data + i * size_of(DType::bf16), sizeof value);
    out.as<float>()[i] = to_float(value);
  }
  return out;
}

Result<Buffer> load_f32(const Checkpoint& checkpoint, std::string_view name) {
  const TensorRef* tensor = checkpoint.find(name);
  if (!tensor) return missing(name);
  return load_f32(*tensor);
}

Weight weight_view(const TensorRef& tensor, const TensorRef* scales, std::vector<Buffer>& copies) {
  GODWIT_ASSERT((tensor.dtype == DType::f8_e4m3) == (scales != nullptr));
  Weight weight;
  weight.data = matrix(tensor, copies);
  if (scales) {
    GODWIT_ASSERT(scales->dtype == DType::f32 && scales->shape.size() == 2);
    weight.scales = static_cast<const float*>(aligned(*scales, copies));
    weight.scale_stride = scales->shape[1];
  }
  return weight;
}

Result<Weight> weight_view(const Checkpoint& checkpoint, std::string_view name, std::vector<Buffer>& copies) {
  const TensorRef* tensor = checkpoint.find(name);
  if (!tensor) return missing(name);
  const TensorRef* scales = tensor->dtype == DType::f8_e4m3 ? checkpoint.find(scale_name(name)) : nullptr;
  if (tensor->dtype == DType::f8_e4m3 && !scales) return missing(scale_name(name));
  return weight_view(*tensor, scales, copies);
}

Weight slice_weight(const Weight& weight, const Slice& slice) {
  Weight part;
  part.data = weight.data.row_range(slice.rows.begin, slice.rows.size())
                  .col_range(slice.columns.begin, slice.columns.size());
  if (weight.scales) {
    part.scales =
        weight.scales + slice.rows.begin / kFp8Block * weight.scale_stride + slice.columns.begin / kFp8Block;
    part.scale_stride = weight.scale_stride;
  }
  return part;
}

}  // namespace godwit
