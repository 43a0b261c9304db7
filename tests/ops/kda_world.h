// One KDA layer with its slots in a side's memory. Inputs are functions of (stream, position) only, so that
// the same tokens can be fed in any slicing, batch or kind.
#pragma once

#include <set>

#include "harness.h"
#include "step_builder.h"

namespace godwit::ops_test {

struct KdaShape {
  int64_t heads = 3;
  int64_t d = 16;
  int32_t taps = 4;
  float decay_scale = 2;  // spread of the forget gate
  float key_alike = 0;    // 0…1: how much of every key is one common direction
  float value_scale = 1;  // of the raw values
  DType window = DType::f32;
  DType out = DType::f32;  // of what mix() leaves
  int64_t slots = 6;
  int64_t pending = 6;
  int64_t slot_stride = 0;  // bytes; 0 = packed

  int64_t width() const { return heads * d; }
};

class KdaWorld {
 public:
  // `memory`: slot 0, when it must lie at a special place.
  KdaWorld(Side& side, const KdaShape& shape, std::byte* memory = nullptr);

  // replay, conv, chunk and step of one step, as the model runs them. Returns the rows' outputs, [T, W].
  Matrix run(const std::vector<SequenceSpec>& specs);

  // The same step by kda_mix: the gates come out of low-rank products, and a gated norm follows.
  Matrix mix(const std::vector<SequenceSpec>& specs);

  Matrix state(int32_t slot);   // [H d, d]
  Matrix window(int32_t slot);  // [taps - 1, 3 W]

 private:
  // Inputs of the rows of a step: projections, and b.
  struct Inputs {
    Matrix raw, beta;
  };
  Inputs inputs(const Step& step) const;

  Side& side_;
  KdaShape shape_;
  kernels::KdaState layout_;
  const float* conv_;
  const float* a_exp_;
  const float* dt_bias_;
};

// Of outputs and states against the oracle; `chunked`: when prompt rows led to them.
Tolerance kda_tolerance(const std::string& backend, const KdaShape& shape, bool chunked);
// Outputs of a step, and the states it leaves, of every sequence. `chunked`: slots that prompt rows have been
// in, those of this step are added.
void expect_close_step(KdaWorld& got, const Matrix& got_rows, KdaWorld& expected, const Matrix& expected_rows,
                       const std::vector<SequenceSpec>& step, const std::string& backend,
                       const KdaShape& shape, std::set<int32_t>& chunked);

}  // namespace godwit::ops_test
