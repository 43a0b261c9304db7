// MaskSource: the token masks of one step, asked for right before its draws, so that they can be made while
// the rows are computed (design §3: rows with a grammar are read in step).
#pragma once

#include <cstdint>

namespace godwit::schedule {

class MaskSource {
 public:
  virtual ~MaskSource() = default;
  // Masks of this step; 0 = no row is masked and await() need not be called.
  virtual int64_t count() const = 0;
  // [count][(V + 31) / 32] in host memory, bit set = allowed; by sample::SamplingRow::mask. Waits until they
  // are made; they stay until the next step.
  virtual const uint32_t* await() = 0;
};

}  // namespace godwit::schedule
