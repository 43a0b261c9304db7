// Where the pages of a sequence lie.
#pragma once

#include "kernels/ops/dsa.h"
#include "kernels/step.h"

namespace godwit::cpu {

class Paged {
 public:
  Paged(const kernels::StepView& step, const kernels::Sequence& s) : table_(step.pages + s.page_offset) {}

  // The i-th page of the sequence: positions [64 i, 64 i + 64).
  std::byte* of(const kernels::DsaCache& cache, int64_t i) const {
    return cache.base + table_[i] * cache.page_stride;
  }

 private:
  const int32_t* table_;
};

}  // namespace godwit::cpu
