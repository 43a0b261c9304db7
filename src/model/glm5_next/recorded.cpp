// Steps of plain decoding as recordings (design §1: no first-shape stall; kernels spec §3.14).
#include <algorithm>

#include "model/glm5_next/model.h"

namespace godwit::model {
namespace {

// Padding costs little where weights are read once for all rows, and nothing at the sizes latency is for.
int64_t next_size(int64_t rows) {
  return rows < 8 ? rows + 1 : rows < 16 ? rows + 4 : rows < 64 ? rows + 8 : rows + 32;
}

}  // namespace

std::vector<int64_t> recorded_rows(const kernels::StepLimits& limits) {
  const int64_t most = std::min(limits.sequences, limits.sampled_rows);
  std::vector<int64_t> out;
  for (int64_t rows = 1; rows < most; rows = next_size(rows)) out.push_back(rows);
  if (most > 0) out.push_back(most);
  return out;
}

void Model::record_steps() {
  recordings_.clear();
  for (const int64_t rows : recorded_rows(options_.limits)) {
    begin({}, rows);
    std::unique_ptr<kernels::Recording> steps = ops_.record([this] { compute(); });
    if (!steps) return;
    recordings_.push_back({rows, std::move(steps)});
  }
  run_slice();
}

// Prompt rows of slot 0 and page 0, where padding lies: what a backend chooses or loads at a first call is
// there before the first request.
void Model::run_slice() {
  schedule::PlanSequence s;
  s.rows.kind = kernels::RowKind::prefill;
  s.rows.rows =
      static_cast<int32_t>(std::min({kernels::kPageTokens, options_.limits.rows, options_.limits.context}));
  s.pages = 1;
  schedule::StepPlan plan;
  plan.pages = {0};
  plan.ids.assign(static_cast<size_t>(s.rows.rows), 0);
  plan.sequences = {s};
  begin(plan);
  compute();
}

const Model::Recorded* Model::recorded(const schedule::StepPlan& plan) const {
  if (recordings_.empty() || observer_ || plan.rows() == 0 || !plan.bias_ids.empty()) return nullptr;
  for (const schedule::PlanSequence& s : plan.sequences) {
    if (s.rows.kind != kernels::RowKind::decode || s.rows.rows != 1 || s.sampled_rows != 1 ||
        s.rows.replay != 0)
      return nullptr;
  }
  for (const Recorded& r : recordings_)
    if (r.rows >= plan.rows()) return &r;
  return nullptr;
}

}  // namespace godwit::model
