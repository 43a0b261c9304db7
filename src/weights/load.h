// From mapped tensors to what ops take: weights in place, small parameters as F32.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"
#include "weights/checkpoint.h"
#include "weights/shard_plan.h"

namespace godwit {

// All elements of a BF16 or F32 tensor, packed, widened to F32. Any other dtype is a bug of ours
// (check_checkpoint comes first).
Buffer load_f32(const TensorRef& tensor);
Result<Buffer> load_f32(const Checkpoint& checkpoint, std::string_view name);

// The tensor as a matrix [shape[0], product of the rest], pointing into the mapping. A file may place data
// off its dtype's alignment: then (only then) the bytes are copied into a buffer that is appended to
// `copies`, which must outlive the weight. `scales` is the .weight_scale_inv sibling of an F8_E4M3 tensor,
// else nullptr.
Weight weight_view(const TensorRef& tensor, const TensorRef* scales, std::vector<Buffer>& copies);
// By name, with the sibling if there is one. data_refused when the tensor, or the scales of
// an F8_E4M3 one, are missing.
Result<Weight> weight_view(const Checkpoint& checkpoint, std::string_view name, std::vector<Buffer>& copies);

// A rank's part of a weight, still in place. F8: the slice passed check_fp8_cuts.
Weight slice_weight(const Weight& weight, const Slice& slice);

}  // namespace godwit
