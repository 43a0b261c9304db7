// Capture: an Observer that keeps what the goldens hold of a prompt.
#pragma once

#include <map>
#include <vector>

#include "model/glm5_next/model.h"

namespace godwit::selftest {

class Capture final : public model::Observer {
 public:
  void after_layer(int layer, const View& streams) override;
  void after_select(int layer, const View& pools, const View& count) override;
  void after_route(int layer, const View& ids, const View& weights) override;
  void before_sample(const View& hidden, const View& logits) override;

  struct Layer {
    std::vector<float> last;             // [n D] streams of the newest row
    double sum = 0, abs_sum = 0;         // over all rows so far
    std::vector<double> token_abs_mean;  // [rows so far]
  };
  std::map<int, Layer> layers;
  std::map<int, std::vector<int32_t>> pools;         // selected pools of the newest row
  std::map<int, std::vector<int32_t>> experts;       // of the newest row, ascending
  std::map<int, std::vector<float>> expert_weights;  // likewise
  std::vector<int32_t> argmax;                       // of every sampled row so far
  std::vector<float> hidden, logits;                 // of the newest sampled row
};

}  // namespace godwit::selftest
