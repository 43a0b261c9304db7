#include "weights/quantize.h"

#include <algorithm>
#include <cmath>

#include "weights/totals.h"

namespace godwit {
namespace {

constexpr float kLargestE4m3 = 448.0f;

float element(const View& weight, int64_t row, int64_t column) {
  return weight.dtype == DType::f32 ? weight.row<float>(row)[column]
                                    : to_float(weight.row<bf16>(row)[column]);
}

}  // namespace

Result<void> quantize_fp8_blocks(const View& weight, f8_e4m3* values, float* scales) {
  GODWIT_ASSERT(weight.dtype == DType::f32 || weight.dtype == DType::bf16);
  const int64_t scale_columns = scale_count(weight.cols);
  for (int64_t first_row = 0; first_row < weight.rows; first_row += kFp8Block) {
    const int64_t last_row = std::min(weight.rows, first_row + kFp8Block);
    for (int64_t first_column = 0; first_column < weight.cols; first_column += kFp8Block) {
      const int64_t last_column = std::min(weight.cols, first_column + kFp8Block);
      float largest = 0;
      for (int64_t r = first_row; r < last_row; ++r) {
        for (int64_t c = first_column; c < last_column; ++c) {
          const float w = element(weight, r, c);
          if (!std::isfinite(w)) {
            return make_error(ErrorCode::data_refused, "", "the value at row {} and column {} is {}", r, c,
                              w);
          }
          largest = std::max(largest, std::fabs(w));
        }
      }
      const float scale = largest > 0 ? largest / kLargestE4m3 : 1.0f;
      scales[first_row / kFp8Block * scale_columns + first_column / kFp8Block] = scale;
      for (int64_t r = first_row; r < last_row; ++r) {
        for (int64_t c = first_column; c < last_column; ++c) {
          values[r * weight.cols + c] = to_e4m3(element(weight, r, c) / scale);
        }
      }
    }
  }
  return {};
}

}  // namespace godwit
