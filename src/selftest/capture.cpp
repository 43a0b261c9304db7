#include "selftest/capture.h"

#include <algorithm>
#include <cmath>

namespace godwit::selftest {
namespace {

std::vector<float> last_row(const View& v) {
  std::vector<float> values;
  for (int64_t c = 0; c < v.cols; ++c) {
    values.push_back(v.dtype == DType::bf16 ? to_float(v.row<bf16>(v.rows - 1)[c])
                                            : v.row<float>(v.rows - 1)[c]);
  }
  return values;
}

}  // namespace

void Capture::after_layer(int layer, const View& streams) {
  Layer& l = layers[layer];
  l.last = last_row(streams);
  for (int64_t r = 0; r < streams.rows; ++r) {
    const float* row = streams.row<float>(r);
    double sum = 0, abs_sum = 0;
    for (int64_t c = 0; c < streams.cols; ++c) {
      sum += row[c];
      abs_sum += std::fabs(row[c]);
    }
    l.sum += sum;
    l.abs_sum += abs_sum;
    l.token_abs_mean.push_back(abs_sum / static_cast<double>(streams.cols));
  }
}

void Capture::after_select(int layer, const View& selected, const View& count) {
  const int64_t last = selected.rows - 1;
  const int32_t* row = selected.row<int32_t>(last);
  pools[layer].assign(row, row + count.row<int32_t>(last)[0]);
}

void Capture::after_route(int layer, const View& ids, const View& weights) {
  const int64_t last = ids.rows - 1;
  experts[layer].assign(ids.row<int32_t>(last), ids.row<int32_t>(last) + ids.cols);
  expert_weights[layer].assign(weights.row<float>(last), weights.row<float>(last) + weights.cols);
}

void Capture::before_sample(const View& hidden_rows, const View& logit_rows) {
  hidden = last_row(hidden_rows);
  logits = last_row(logit_rows);
  for (int64_t r = 0; r < logit_rows.rows; ++r) {
    const float* row = logit_rows.row<float>(r);
    argmax.push_back(static_cast<int32_t>(std::max_element(row, row + logit_rows.cols) - row));
  }
}

}  // namespace godwit::selftest
