#include "engine/replay.h"

#include <algorithm>
#include <exception>

#include "model/glm5_next/model.h"

namespace godwit::engine {
namespace {

Error refuse(std::string_view field, std::string_view what) {
  return make_error(ErrorCode::data_refused, std::string(field), "the dump contradicts itself: {} {}", field,
                    what);
}

const StepDump::Sequence* tokens_of(const StepDump& dump, uint64_t request) {
  for (const StepDump::Sequence& s : dump.sequences)
    if (s.number == request) return &s;
  return nullptr;
}

// Everything the model will index with. A dump is a file, so it is checked like one.
Result<void> check(const StepDump& dump, const Ledger& ledger, int64_t vocabulary) {
  const schedule::StepPlan& plan = dump.plan;
  const auto within = [](int64_t value, int64_t low, int64_t high) { return value >= low && value < high; };
  const int64_t count = static_cast<int64_t>(plan.sequences.size());
  if (!within(count, 1, ledger.schedule.max_sequences + 1))
    return refuse("sequences", "are too many or none");
  if (plan.rows() > ledger.model.limits.rows) return refuse("ids", "has more rows than a step may");
  if (!within(plan.decode_sequences, 0, count + 1)) return refuse("decode_sequences", "is out of range");
  for (const int32_t id : plan.ids)
    if (!within(id, 0, vocabulary)) return refuse("ids", "has an id outside the vocabulary");
  for (const int32_t page : plan.pages)
    if (!within(page, 1, ledger.model.pages)) return refuse("pages", "has a page outside the pool");
  if (plan.bias_ids.size() != plan.bias_values.size())
    return refuse("bias_ids", "and bias_values differ in length");
  for (const int32_t id : plan.bias_ids)
    if (!within(id, 0, vocabulary)) return refuse("bias_ids", "has an id outside the vocabulary");

  int64_t rows = 0, sampled = 0;
  for (int64_t i = 0; i < count; ++i) {
    const schedule::PlanSequence& p = plan.sequences[static_cast<size_t>(i)];
    const StepDump::Sequence* s = tokens_of(dump, p.request);
    if (!s) return refuse("requests", "lacks a sequence of the plan");
    const int64_t end = p.rows.first + p.rows.rows;
    if (p.rows.first < 0 || p.rows.rows < 1 || p.rows.row != rows ||
        end > static_cast<int64_t>(s->tokens.size()) || end > ledger.schedule.context)
      return refuse("rows", "of a sequence do not follow from its tokens");
    if (!within(s->prompt_tokens, 1, static_cast<int64_t>(s->tokens.size()) + 1))
      return refuse("prompt_tokens", "is out of range");
    if (kernels::is_decode_family(p.rows.kind) != (i < plan.decode_sequences) || p.rows.replay != 0)
      return refuse("kind", "of a sequence is not where it belongs");
    if (!within(p.rows.slot, 1, ledger.model.slots)) return refuse("slot", "is out of range");
    if (p.pages != cache::pages_for(end) || p.rows.page_offset < 0 ||
        p.rows.page_offset + int64_t{p.pages} > static_cast<int64_t>(plan.pages.size()))
      return refuse("page_offset", "is out of range");
    if (!within(p.sampled_rows, 0, p.rows.rows + 1)) return refuse("sampled_rows", "is out of range");
    for (const int32_t id : s->tokens)
      if (!within(id, 0, vocabulary)) return refuse("tokens", "has an id outside the vocabulary");
    rows += p.rows.rows;
    sampled += p.sampled_rows;
  }
  if (rows != plan.rows()) return refuse("rows", "do not add up to the ids");
  if (sampled != static_cast<int64_t>(plan.samples.size()) || sampled > ledger.model.limits.sampled_rows)
    return refuse("samples", "do not add up to the sampled rows");
  for (const sample::SamplingRow& s : plan.samples) {
    if (!within(s.slot, 1, ledger.model.slots)) return refuse("slot", "of a sample is out of range");
    if (s.bias_offset < 0 || s.bias_count < 0 ||
        int64_t{s.bias_offset} + s.bias_count > static_cast<int64_t>(plan.bias_ids.size()))
      return refuse("bias_offset", "is out of range");
    if (s.top_logprobs > sample::kMaxTopLogprobs) return refuse("top_logprobs", "is out of range");
  }
  return {};
}

// Positions [0, p.first) of one sequence, in its own slot and pages, by the kinds of rows they once were.
int64_t rebuild(model::Model& model, const StepDump& dump, const schedule::PlanSequence& p,
                const Ledger& ledger) {
  const StepDump::Sequence& s = *tokens_of(dump, p.request);
  int64_t at = 0;
  while (at < p.rows.first) {
    const bool prefill = at < s.prompt_tokens;
    const int64_t rows = std::min({prefill ? ledger.schedule.prefill_tokens : ledger.schedule.forced_rows,
                                   p.rows.first - at, prefill ? s.prompt_tokens - at : p.rows.first});
    schedule::StepPlan plan;
    schedule::PlanSequence part = p;
    part.rows.first = at;
    part.rows.row = 0;
    part.rows.rows = static_cast<int32_t>(rows);
    part.rows.page_offset = 0;
    part.rows.kind = prefill ? kernels::RowKind::prefill : kernels::RowKind::forced;
    part.pages = static_cast<int32_t>(cache::pages_for(at + rows));
    part.sampled_rows = 0;
    plan.sequences.push_back(part);
    plan.decode_sequences = prefill ? 0 : 1;
    plan.ids.assign(s.tokens.begin() + at, s.tokens.begin() + at + rows);
    const auto pages = dump.plan.pages.begin() + p.rows.page_offset;
    plan.pages.assign(pages, pages + part.pages);
    model.forward(plan, nullptr);
    at += rows;
  }
  return at;
}

}  // namespace

Result<Replayed> replay_step(const StepDump& dump, const std::filesystem::path& model_dir, int threads) {
  GODWIT_ASSIGN(ModelConfig config, read_model_config(model_dir));
  GODWIT_ASSIGN(Checkpoint checkpoint, Checkpoint::open(model_dir));
  const std::vector<TensorSpec> inventory = make_inventory(config);
  GODWIT_TRY(check_checkpoint(checkpoint, inventory, NextnUse::optional));
  GODWIT_ASSIGN(const ShardPlan shards, ShardPlan::make(config.text, 1, 1));
  const std::unique_ptr<kernels::Ops> ops = kernels::make_cpu_ops(threads);
  comm::Solo comm;
  const LedgerModel priced{config, found_inventory(checkpoint, inventory), Form::fp8};
  const LedgerRequest request{dump.sizes};
  GODWIT_ASSIGN(const Ledger ledger, make_ledger(priced, request, ops.get()));
  GODWIT_TRY(check(dump, ledger, config.text.vocab_size));
  try {
    GODWIT_ASSIGN(const std::unique_ptr<model::Model> model,
                  model::Model::load(checkpoint, config, shards, *ops, comm, ledger.model));
    Replayed out;
    for (const schedule::PlanSequence& p : dump.plan.sequences) {
      out.rebuilt_rows += rebuild(*model, dump, p, ledger);
      const StepDump::Sequence& s = *tokens_of(dump, p.request);
      model->start_history(p.rows.slot, s.tokens, s.prompt_tokens);
    }
    out.drawn.resize(dump.plan.samples.size());
    model->forward(dump.plan, out.drawn.data());
    return out;
  } catch (const std::exception& failure) {
    return make_error(ErrorCode::internal, "", "step {} fails again: {}", dump.plan.step, failure.what());
  }
}

}  // namespace godwit::engine
