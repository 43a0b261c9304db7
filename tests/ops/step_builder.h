// A StepView in a side's memory from a list of sequences in step order.
#pragma once

#include "harness.h"

namespace godwit::ops_test {

struct SequenceSpec {
  kernels::RowKind kind = kernels::RowKind::prefill;
  int64_t first = 0;
  int32_t rows = 0;
  int32_t slot = 0;
  int32_t replay = 0;
  std::vector<int32_t> pages;  // physical pages in order of position
  uint64_t stream = 0;         // whose data the rows carry (see the worlds); not part of the step
};

class Step {
 public:
  Step(Side& side, const std::vector<SequenceSpec>& specs, const std::vector<int32_t>& ids = {});

  kernels::StepView view;
  std::vector<SequenceSpec> specs;

  // Calls f(row, spec, position) for every row.
  template <class F>
  void each_row(F f) const {
    int64_t row = 0;
    for (const SequenceSpec& s : specs) {
      for (int32_t r = 0; r < s.rows; ++r) f(row++, s, s.first + r);
    }
  }
};

}  // namespace godwit::ops_test
