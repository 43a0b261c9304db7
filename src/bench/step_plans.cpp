#include "bench/step_plans.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace godwit::bench {
namespace {

using kernels::kPageTokens;

int64_t pages_for(int64_t tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

sample::SamplingRow greedy(int32_t slot, int64_t position) {
  sample::SamplingRow s;
  s.temperature = 0;
  s.slot = slot;
  s.position = position;
  return s;
}

}  // namespace

int64_t StepShape::first() const {
  return prefill ? context / kPageTokens * kPageTokens : context;
}

int64_t StepShape::tokens() const {
  return first() + rows + drafts + (prefill ? kPageTokens : 0);
}

int64_t StepShape::table_pages() const {
  return pages_for(tokens());
}

int64_t StepShape::shared_pages() const {
  return shared ? first() / kPageTokens : 0;
}

int64_t StepShape::pages() const {
  return shared_pages() + batch * (table_pages() - shared_pages());
}

schedule::StepPlan make_plan(const StepShape& shape, Range ids) {
  std::vector<int32_t> order(static_cast<size_t>(shape.pages()));
  std::iota(order.begin(), order.end(), 1);
  std::mt19937 random(5);
  std::shuffle(order.begin(), order.end(), random);
  const auto common = order.begin() + shape.shared_pages();
  const int64_t own = shape.table_pages() - shape.shared_pages();
  schedule::StepPlan plan;
  plan.pages.reserve(static_cast<size_t>(shape.batch * shape.table_pages()));
  for (int64_t i = 0; i < shape.batch; ++i) {
    schedule::PlanSequence p;
    p.request = static_cast<uint64_t>(i);
    p.rows.first = shape.first();
    p.rows.row = plan.rows();
    p.rows.rows = static_cast<int32_t>(shape.rows);
    p.rows.slot = static_cast<int32_t>(i + 1);
    p.rows.page_offset = static_cast<int32_t>(plan.pages.size());
    p.rows.kind = shape.prefill    ? kernels::RowKind::prefill
                  : shape.rows > 1 ? kernels::RowKind::verify
                                   : kernels::RowKind::decode;
    p.pages = static_cast<int32_t>(pages_for(shape.first() + shape.rows));
    p.sampled_rows = shape.prefill ? 1 : static_cast<int32_t>(shape.rows);
    plan.pages.insert(plan.pages.end(), order.begin(), common);
    plan.pages.insert(plan.pages.end(), common + i * own, common + (i + 1) * own);
    for (int64_t r = 0; r < shape.rows; ++r)
      plan.ids.push_back(static_cast<int32_t>(
          ids.begin + static_cast<int64_t>(random() % static_cast<uint64_t>(ids.size()))));
    for (int64_t r = shape.rows - p.sampled_rows; r < shape.rows; ++r)
      plan.samples.push_back(greedy(p.rows.slot, shape.first() + r + 1));
    plan.restores.push_back({p.rows.slot, static_cast<int32_t>(i), shape.first()});
    plan.sequences.push_back(p);
  }
  plan.decode_sequences = shape.prefill ? 0 : static_cast<int32_t>(shape.batch);
  return plan;
}

schedule::StepPlan plan_draft(const schedule::StepPlan& step) {
  schedule::StepPlan plan = step;
  plan.restores.clear();
  for (schedule::PlanSequence& p : plan.sequences) {
    p.rows.first += 1;
    p.rows.kind = kernels::RowKind::draft;
    p.pages = static_cast<int32_t>(pages_for(p.rows.first + p.rows.rows));
  }
  for (sample::SamplingRow& s : plan.samples) s.position += 1;
  return plan;
}

schedule::StepPlan plan_slice(const schedule::StepPlan& slice, int64_t at, int64_t rows) {
  schedule::StepPlan plan;
  plan.pages = slice.pages;
  for (schedule::PlanSequence p : slice.sequences) {
    const auto ids = slice.ids.begin() + p.rows.row;
    const bool last = at + rows == p.rows.first + p.rows.rows;
    if (at == 0) plan.restores.push_back({p.rows.slot, p.rows.slot - 1, 0});
    p.rows.first = at;
    p.rows.row = plan.rows();
    p.rows.rows = static_cast<int32_t>(rows);
    p.pages = static_cast<int32_t>(pages_for(at + rows));
    p.sampled_rows = last ? 1 : 0;
    if (last) plan.samples.push_back(greedy(p.rows.slot, at + rows));
    plan.ids.insert(plan.ids.end(), ids, ids + rows);
    plan.sequences.push_back(p);
  }
  return plan;
}

schedule::StepPlan plan_behind(const schedule::StepPlan& slice, int64_t nth) {
  schedule::StepPlan plan;
  plan.pages = slice.pages;
  for (schedule::PlanSequence p : slice.sequences) {
    p.rows.first += p.rows.rows + nth;
    p.rows.row = plan.rows();
    p.rows.rows = 1;
    p.rows.kind = kernels::RowKind::decode;
    p.pages = static_cast<int32_t>(pages_for(p.rows.first + 1));
    plan.ids.push_back(slice.ids[static_cast<size_t>(p.rows.row + nth) % slice.ids.size()]);
    plan.samples.push_back(greedy(p.rows.slot, p.rows.first + 1));
    plan.sequences.push_back(p);
  }
  plan.decode_sequences = static_cast<int32_t>(plan.sequences.size());
  return plan;
}

}  // namespace godwit::bench
