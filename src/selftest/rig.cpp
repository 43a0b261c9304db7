#include "selftest/rig.h"

#include <algorithm>

#include "kernels/make_ops.h"
#include "weights/inventory.h"

namespace godwit::selftest {

Result<std::unique_ptr<Rig>> Rig::open(const std::filesystem::path& model_dir, const RigOptions& options) {
  std::unique_ptr<Rig> rig(new Rig());
  rig->options_ = options;
  GODWIT_ASSIGN(rig->config_, read_model_config(model_dir));
  GODWIT_ASSIGN(Checkpoint checkpoint, Checkpoint::open(model_dir));
  rig->checkpoint_ = std::make_unique<Checkpoint>(std::move(checkpoint));
  // The random model's draft block has no shared_experts.down_proj.
  GODWIT_ASSIGN(const CheckReport report,
                check_checkpoint(*rig->checkpoint_, make_inventory(rig->config_),
                                 options.drafts > 0 ? NextnUse::required : NextnUse::optional));
  static_cast<void>(report);
  GODWIT_ASSIGN(rig->ops_, kernels::make_ops(options.backend, options.threads));
  GODWIT_ASSIGN(const ShardPlan shards, ShardPlan::make(rig->config_.text, 1, 1));

  rig->pages_per_slot_ = (options.context + kernels::kPageTokens - 1) / kernels::kPageTokens;
  model::ModelOptions m;
  m.limits.rows = options.rows;
  m.limits.decode_rows = options.rows;
  m.limits.sequences = options.slots;
  m.limits.context = options.context;
  m.limits.sampled_rows = options.rows;
  m.limits.pending_rows = options.drafts + 1;
  m.kv_dtype = options.cache;
  m.pages = options.slots * rig->pages_per_slot_ + 1;
  m.slots = options.slots + 1;
  GODWIT_ASSIGN(rig->model_,
                model::Model::load(*rig->checkpoint_, rig->config_, shards, *rig->ops_, rig->comm_, m));
  return rig;
}

schedule::StepPlan Rig::plan_of(std::span<const Rows> rows) const {
  schedule::StepPlan plan;
  const auto add = [&](const Rows& r) {
    schedule::PlanSequence p;
    p.request = static_cast<uint64_t>(r.slot);
    p.rows.first = r.first;
    p.rows.row = plan.rows();
    p.rows.rows = static_cast<int32_t>(r.ids.size());
    p.rows.slot = r.slot;
    p.rows.page_offset = static_cast<int32_t>(plan.pages.size());
    p.rows.kind = r.kind;
    const int64_t tokens = r.first + static_cast<int64_t>(r.ids.size());
    p.pages = static_cast<int32_t>((tokens + kernels::kPageTokens - 1) / kernels::kPageTokens);
    p.sampled_rows = r.sampled;
    plan.ids.insert(plan.ids.end(), r.ids.begin(), r.ids.end());
    // A slot's pages lie backwards in the pool: nothing may depend on their order.
    for (int32_t i = 0; i < p.pages; ++i)
      plan.pages.push_back(static_cast<int32_t>(r.slot * pages_per_slot_) - i);
    for (int32_t i = 0; i < r.sampled; ++i) {
      sample::SamplingRow s;
      s.temperature = 0;
      s.slot = r.slot;
      s.position = tokens - r.sampled + i + 1;
      plan.samples.push_back(s);
    }
    plan.sequences.push_back(p);
  };
  for (const Rows& r : rows)
    if (kernels::is_decode_family(r.kind)) add(r);
  plan.decode_sequences = static_cast<int32_t>(plan.sequences.size());
  for (const Rows& r : rows)
    if (!kernels::is_decode_family(r.kind)) add(r);
  return plan;
}

std::vector<sample::Sampled> Rig::step(std::span<const Rows> rows) {
  const schedule::StepPlan plan = plan_of(rows);
  std::vector<sample::Sampled> out(plan.samples.size());
  model_->forward(plan, out.data());
  return out;
}

std::vector<sample::Sampled> Rig::draft(std::span<const Rows> rows, int32_t ahead) {
  const schedule::StepPlan plan = plan_of(rows);
  std::vector<sample::Sampled> out(plan.samples.size());
  model_->draft(plan, ahead, out.data());
  return out;
}

std::vector<int32_t> Rig::greedy(int32_t slot, std::span<const int32_t> prompt, int64_t slice,
                                 int64_t steps) {
  const int64_t length = static_cast<int64_t>(prompt.size());
  std::vector<int32_t> out;
  for (int64_t at = 0; at < length; at += slice) {
    const int64_t n = std::min(slice, length - at);
    const Rows rows{slot, kernels::RowKind::prefill, at,
                    prompt.subspan(static_cast<size_t>(at), static_cast<size_t>(n)),
                    at + n == length ? 1 : 0};
    const auto drawn = step({&rows, 1});
    if (!drawn.empty()) out.push_back(drawn[0].id);
  }
  while (static_cast<int64_t>(out.size()) < steps) {
    const int32_t last = out.back();
    const Rows rows{
        slot, kernels::RowKind::decode, length + static_cast<int64_t>(out.size()) - 1, {&last, 1}, 1};
    out.push_back(step({&rows, 1})[0].id);
  }
  return out;
}

}  // namespace godwit::selftest
