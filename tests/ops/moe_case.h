// The arguments of a MoE layer in a side's memory.
#pragma once

#include "harness.h"

namespace godwit::ops_test {

struct MoeCase {
  int64_t experts, chosen, inner;  // of the whole model, chosen by a row, of a routed expert
  DType dtype;                     // of all experts
  int32_t first_expert = 0;        // of this rank
  float limit = 0;
  int64_t decode_rows = kernels::kAllRows;
};

// `table`: the experts of this rank.
inline kernels::Moe moe_of(Side& s, const MoeCase& c, const View& x, const Weight& router, const float* bias,
                           const std::vector<kernels::ExpertWeights>& table,
                           const kernels::ExpertWeights& shared) {
  const int64_t rows = x.rows, inner = shared.gate.out();
  kernels::Moe a;
  a.route = {x,
             router,
             bias,
             2.5f,
             s.output(rows, c.experts),
             s.output(rows, c.chosen, DType::i32),
             s.output(rows, c.chosen),
             c.decode_rows};
  a.experts.x = x;
  a.experts.ids = a.route.ids;
  a.experts.weights = a.route.weights;
  a.experts.experts = s.upload(table);
  a.experts.dtype = c.dtype;
  a.experts.inner = c.inner;
  a.experts.first_expert = c.first_expert;
  a.experts.expert_count = static_cast<int32_t>(table.size());
  a.experts.limit = c.limit;
  a.experts.out = s.output(rows, x.cols);
  a.experts.decode_rows = c.decode_rows;
  a.shared = {x,
              shared.gate,
              shared.up,
              shared.down,
              c.limit,
              s.output(rows, 2 * inner),
              s.output(rows, inner),
              s.output(rows, x.cols),
              c.decode_rows};
  a.out = s.output(rows, x.cols);
  return a;
}

}  // namespace godwit::ops_test
