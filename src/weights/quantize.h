// Block quantisation as in the released checkpoint (glm5_next spec §3.4, models/README.md "FP8 form").
#pragma once

#include "base/result.h"
#include "tensor/tensor.h"

namespace godwit {

// weight [N, K] bf16 | f32 -> values [N, K] packed, scales [ceil(N/128), ceil(K/128)]:
//   scale = largest |w| of the block / 448 (1 for a block of zeros), value = e4m3(w / scale),
// both divisions in f32, the value rounded to nearest even and saturated. data_refused when a value is not
// finite, naming row and column.
Result<void> quantize_fp8_blocks(const View& weight, f8_e4m3* values, float* scales);

}  // namespace godwit
