// Where the pages of a sequence lie.
#pragma once

#include "kernels/ops/dsa.h"
#include "kernels/step.h"

namespace godwit::cpu {

class Paged {
 public:
  Paged(const kernels::StepView& step, const kernels::Sequence& s) : table_(step.pages + s.page_offset) {}

  kernels::StoredRow latent(const kernels::DsaCache& cache, int64_t position, int64_t width) const {
    return cache.latent(table_[position / kernels::kPageTokens], position % kernels::kPageTokens, width);
  }
  // Pool p of the sequence, `pools` in a page.
  kernels::StoredRow key(const kernels::DsaCache& cache, int64_t pools, int64_t p, int64_t width) const {
    return cache.key(table_[p / pools], pools, p % pools, width);
  }

 private:
  const int32_t* table_;
};

}  // namespace godwit::cpu
