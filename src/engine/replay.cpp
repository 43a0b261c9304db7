#include "engine/replay.h"

#include <algorithm>
#include <exception>
#include <utility>

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
  if (sampled != static_cast<int64_t>(plan.samples.size()) || sampled > ledger.model.limits.logits_rows())
    return refuse("samples", "do not add up to the sampled rows");
  for (const sample::SamplingRow& s : plan.samples) {
    if (!within(s.slot, 1, ledger.model.slots)) return refuse("slot", "of a sample is out of range");
    if (s.scored >= 0 && !within(s.scored, 0, vocabulary))
      return refuse("scored", "is outside the vocabulary");
    if (s.bias_offset < 0 || s.bias_count < 0 ||
        int64_t{s.bias_offset} + s.bias_count > static_cast<int64_t>(plan.bias_ids.size()))
      return refuse("bias_offset", "is out of range");
    if (s.top_logprobs > sample::kMaxTopLogprobs) return refuse("top_logprobs", "is out of range");
  }
  return {};
}

// The masks of the dumped step, made anew from their runs.
class DumpedMasks final : public schedule::MaskSource {
 public:
  static Result<DumpedMasks> make(const StepDump& dump, int64_t vocabulary) {
    DumpedMasks out;
    out.count_ = static_cast<int64_t>(dump.masks.size());
    if (out.count_ > static_cast<int64_t>(dump.plan.samples.size()))
      return refuse("masks", "are more than the samples");
    const auto words = static_cast<size_t>((vocabulary + 31) / 32);
    out.words_.resize(dump.masks.size() * words);
    for (size_t i = 0; i < dump.masks.size(); ++i)
      if (!mask_of(dump.masks[i], vocabulary, std::span(out.words_).subspan(i * words, words)))
        return refuse("masks", "do not add up to the vocabulary");
    for (const sample::SamplingRow& s : dump.plan.samples)
      if (s.mask < -1 || s.mask >= out.count_) return refuse("mask", "of a sample is out of range");
    return out;
  }
  int64_t count() const override { return count_; }
  const uint32_t* await() override { return words_.data(); }

 private:
  int64_t count_ = 0;
  std::vector<uint32_t> words_;
};

Result<std::vector<bool>> vocabulary_of(const StepDump& dump, int64_t vocabulary) {
  std::vector<uint32_t> words(static_cast<size_t>((vocabulary + 31) / 32));
  if (!mask_of(dump.vocabulary, vocabulary, words))
    return refuse("vocabulary", "does not add up to the model's");
  std::vector<bool> out;
  for (int64_t id = 0; id < vocabulary; ++id)
    out.push_back((words[static_cast<size_t>(id / 32)] >> (id % 32) & 1) != 0);
  return out;
}

// Adds rows [first, first + rows) of a sequence of the dumped plan to another plan. Nothing is sampled.
void add_part(schedule::StepPlan& plan, const StepDump& dump, const schedule::PlanSequence& p, int64_t first,
              int64_t rows, kernels::RowKind kind) {
  const StepDump::Sequence& s = *tokens_of(dump, p.request);
  schedule::PlanSequence part = p;
  part.rows.first = first;
  part.rows.row = plan.rows();
  part.rows.rows = static_cast<int32_t>(rows);
  part.rows.page_offset = static_cast<int32_t>(plan.pages.size());
  part.rows.kind = kind;
  part.pages = static_cast<int32_t>(cache::pages_for(first + rows));
  part.sampled_rows = 0;
  plan.sequences.push_back(part);
  plan.decode_sequences += kernels::is_decode_family(kind) ? 1 : 0;
  plan.ids.insert(plan.ids.end(), s.tokens.begin() + first, s.tokens.begin() + first + rows);
  const auto pages = dump.plan.pages.begin() + p.rows.page_offset;
  plan.pages.insert(plan.pages.end(), pages, pages + part.pages);
}

// Positions [0, end) of one sequence, in its own slot and pages, by the kinds of rows they once were.
int64_t rebuild(model::Model& model, const StepDump& dump, const schedule::PlanSequence& p, int64_t end,
                const Ledger& ledger) {
  const StepDump::Sequence& s = *tokens_of(dump, p.request);
  int64_t at = 0;
  while (at < end) {
    const bool prefill = at < s.prompt_tokens;
    const int64_t rows = std::min({prefill ? ledger.schedule.prefill_tokens : ledger.schedule.forced_rows,
                                   end - at, prefill ? s.prompt_tokens - at : end});
    schedule::StepPlan plan;
    add_part(plan, dump, p, at, rows, prefill ? kernels::RowKind::prefill : kernels::RowKind::forced);
    model.forward(plan, nullptr);
    at += rows;
  }
  return at;
}

// What of a recorded step can run again.
struct Again {
  std::vector<std::pair<size_t, const schedule::PlanSequence*>>
      parts;  // of which sequence of the dumped plan
};

// The recorded steps before the dumped one that lead up to it, oldest first, at most `steps`. `starts`: where
// each sequence of the dumped plan stood before them. A sequence's steps count back as long as each ends
// where the next begins, in the same slot: before that it was sent away and came back.
std::vector<Again> before_the_last(const StepDump& dump, int64_t steps, std::vector<int64_t>& starts) {
  std::vector<Again> out;
  for (const schedule::PlanSequence& p : dump.plan.sequences) starts.push_back(p.rows.first);
  const auto end = static_cast<int64_t>(dump.steps.size()) - 1;
  for (int64_t i = end - 1; i >= std::max<int64_t>(0, end - steps); --i) {
    Again again;
    for (const schedule::PlanSequence& r : dump.steps[static_cast<size_t>(i)].sequences)
      for (size_t k = 0; k < starts.size(); ++k) {
        const schedule::PlanSequence& p = dump.plan.sequences[k];
        if (p.request != r.request || p.rows.slot != r.rows.slot || r.rows.first + r.rows.rows != starts[k])
          continue;
        starts[k] = r.rows.first;
        again.parts.emplace_back(k, &r);
      }
    if (!again.parts.empty()) out.push_back(std::move(again));
  }
  std::reverse(out.begin(), out.end());
  return out;
}

// Rows that may run: whole slices on the grid where they are of a prompt, and no more than a step has room
// for.
Result<void> check(const Again& again, const StepDump& dump, const Ledger& ledger) {
  int64_t rows = 0;
  bool prefill = false;
  for (const auto& [k, r] : again.parts) {
    const StepDump::Sequence& s = *tokens_of(dump, r->request);
    const bool of_prompt = r->rows.kind == kernels::RowKind::prefill;
    const int64_t end = r->rows.first + r->rows.rows;
    if (r->rows.first < 0 || r->rows.rows < 1 || (prefill && !of_prompt) ||
        (of_prompt && end > s.prompt_tokens) || (!of_prompt && r->rows.first < s.prompt_tokens))
      return refuse("steps", "has rows that do not follow from their sequence");
    if (of_prompt && (r->rows.first % cache::kPageTokens != 0 ||
                      (end % cache::kPageTokens != 0 && end != s.prompt_tokens)))
      return refuse("steps", "has a slice that is not on the grid");
    prefill = of_prompt;
    rows += r->rows.rows;
  }
  if (rows > ledger.model.limits.rows) return refuse("steps", "has more rows than a step may");
  return {};
}

}  // namespace

Result<Replayed> replay_step(const StepDump& dump, const std::filesystem::path& model_dir, int threads,
                             int64_t steps) {
  GODWIT_ASSIGN(ModelConfig config, read_model_config(model_dir));
  GODWIT_ASSIGN(Checkpoint checkpoint, Checkpoint::open(model_dir));
  const std::vector<TensorSpec> inventory = make_inventory(config);
  GODWIT_TRY(check_checkpoint(checkpoint, inventory, NextnUse::optional));
  GODWIT_ASSIGN(const ShardPlan shards, ShardPlan::make(config.text, 1, 1));
  const std::unique_ptr<kernels::Ops> ops = kernels::make_cpu_ops(threads);
  comm::Solo comm;
  const LedgerModel priced{config, found_inventory(checkpoint, inventory), Form::fp8};
  LedgerRequest request{dump.sizes};
  request.kv = dump.kv;
  GODWIT_ASSIGN(const Ledger ledger, make_ledger(priced, request, ops.get()));
  GODWIT_TRY(check(dump, ledger, config.text.vocab_size));
  GODWIT_ASSIGN(DumpedMasks masks, DumpedMasks::make(dump, config.text.vocab_size));
  GODWIT_ASSIGN(const std::vector<bool> has_token, vocabulary_of(dump, config.text.vocab_size));
  std::vector<int64_t> starts;
  const std::vector<Again> before = before_the_last(dump, steps - 1, starts);
  for (const Again& again : before) GODWIT_TRY(check(again, dump, ledger));
  try {
    GODWIT_ASSIGN(const std::unique_ptr<model::Model> model,
                  model::Model::load(checkpoint, config, shards, *ops, comm, ledger.model));
    model->set_vocabulary(has_token, {config.eos_token_ids.begin(), config.eos_token_ids.end()});
    Replayed out;
    for (size_t k = 0; k < starts.size(); ++k)
      out.rebuilt_rows += rebuild(*model, dump, dump.plan.sequences[k], starts[k], ledger);
    for (const Again& again : before) {
      schedule::StepPlan plan;
      for (const auto& [k, r] : again.parts)
        add_part(plan, dump, dump.plan.sequences[k], r->rows.first, r->rows.rows, r->rows.kind);
      model->forward(plan, nullptr);
    }
    for (const schedule::PlanSequence& p : dump.plan.sequences) {
      const StepDump::Sequence& s = *tokens_of(dump, p.request);
      model->start_history(p.rows.slot, s.tokens, s.prompt_tokens);
    }
    out.drawn.resize(dump.plan.samples.size());
    model->forward(dump.plan, out.drawn.data(), &masks);
    out.replayed_steps = static_cast<int64_t>(before.size()) + 1;
    return out;
  } catch (const std::exception& failure) {
    return make_error(ErrorCode::internal, "", "step {} fails again: {}", dump.plan.step, failure.what());
  }
}

}  // namespace godwit::engine
