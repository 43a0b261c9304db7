#include "model/glm5_next/step_arrays.h"

#include <algorithm>
#include <cstring>

#include "model/glm5_next/dims.h"

namespace godwit::model {
namespace {

constexpr int64_t kAlign = 64;
constexpr int64_t kMaxBias = 1024 + 1;  // logit_bias pairs of a request (api spec §4.5), and the tool call id

int64_t most_pages(const kernels::StepLimits& l) {
  return l.sequences * ((l.context + kernels::kPageTokens - 1) / kernels::kPageTokens) + 1;
}

// The largest step, every array rounded up.
int64_t staging_bytes(const kernels::StepLimits& l) {
  const int64_t entries = 3 * l.rows + most_pages(l) + l.logits_rows() + l.sampled_rows * 2 * kMaxBias;
  return entries * 4 + l.sequences * static_cast<int64_t>(sizeof(kernels::Sequence)) +
         l.logits_rows() * static_cast<int64_t>(sizeof(sample::SamplingRow)) + 9 * kAlign;
}

}  // namespace

StepArrays::StepArrays(Arena& arena, const kernels::StepLimits& limits) : arena_(arena), limits_(limits) {
  sequences_.reserve(static_cast<size_t>(limits.sequences));
  row_sequence_.reserve(static_cast<size_t>(limits.rows));
  sampled_rows_.reserve(static_cast<size_t>(limits.logits_rows()));
  if (drafts(limits)) sources_.reserve(static_cast<size_t>(limits.rows));
  if (arena_.in_place()) return;
  pages_.reserve(static_cast<size_t>(most_pages(limits)));
  ids_.reserve(static_cast<size_t>(limits.rows));
  samples_.reserve(static_cast<size_t>(limits.logits_rows()));
  const int64_t bytes = staging_bytes(limits);
  staging_ = Buffer(static_cast<size_t>(bytes));
  device_ = arena_.take(bytes);
}

template <class T>
const T* StepArrays::stage(const std::vector<T>& host) {
  if (arena_.in_place()) return host.data();
  const int64_t at = staged_;
  const auto bytes = static_cast<int64_t>(host.size() * sizeof(T));
  staged_ += (bytes + kAlign - 1) / kAlign * kAlign;
  GODWIT_ASSERT(staged_ <= static_cast<int64_t>(staging_.bytes()));
  std::memcpy(staging_.as<std::byte>() + at, host.data(), static_cast<size_t>(bytes));
  return static_cast<const T*>(static_cast<void*>(device_ + at));
}

// A row of position 0 in slot 0 and page 0, from which nothing is drawn.
void StepArrays::pad() {
  kernels::Sequence s;
  s.row = static_cast<int32_t>(ids_.size());
  s.rows = 1;
  s.page_offset = static_cast<int32_t>(pages_.size()) - 1;
  row_sequence_.push_back(static_cast<int32_t>(sequences_.size()));
  sequences_.push_back(s);
  sampled_rows_.push_back(s.row);
  ids_.push_back(0);
  samples_.emplace_back().slot = kernels::kNoSlot;
}

// The page tables of a plan have places of their own, most of which a step does not use.
void StepArrays::pack(const schedule::StepPlan& plan) {
  pages_.clear();
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const auto table = plan.pages.begin() + plan.sequences[i].rows.page_offset;
    sequences_[i].page_offset = static_cast<int32_t>(pages_.size());
    pages_.insert(pages_.end(), table, table + plan.sequences[i].pages);
  }
  pages_.push_back(0);  // of padded rows
  ids_.assign(plan.ids.begin(), plan.ids.end());
  samples_.assign(plan.samples.begin(), plan.samples.end());
}

void StepArrays::set(const schedule::StepPlan& plan, int64_t padded) {
  sources_.clear();
  arrange(plan, padded);
}

void StepArrays::follow(const schedule::StepPlan& plan) {
  sources_.clear();
  for (const schedule::PlanSequence& s : plan.sequences) {
    const auto before = std::find_if(sequences_.begin(), sequences_.end(),
                                     [&](const kernels::Sequence& b) { return b.slot == s.rows.slot; });
    GODWIT_ASSERT(before != sequences_.end() && s.rows.first >= before->first &&
                  s.rows.first + s.rows.rows <= before->first + before->rows);
    const auto row = static_cast<int32_t>(before->row + s.rows.first - before->first);
    for (int32_t r = 0; r < s.rows.rows; ++r) sources_.push_back(row + r);
  }
  arrange(plan, 0);
}

void StepArrays::arrange(const schedule::StepPlan& plan, int64_t padded) {
  sequences_.clear();
  row_sequence_.clear();
  sampled_rows_.clear();
  int32_t decode_rows = 0, replays = 0;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const schedule::PlanSequence& s = plan.sequences[i];
    sequences_.push_back(s.rows);
    if (s.rows.replay > 0) ++replays;
    for (int32_t r = 0; r < s.rows.rows; ++r) row_sequence_.push_back(static_cast<int32_t>(i));
    for (int32_t r = s.rows.rows - s.sampled_rows; r < s.rows.rows; ++r)
      sampled_rows_.push_back(s.rows.row + r);
    if (kernels::is_decode_family(s.rows.kind)) decode_rows += s.rows.rows;
  }
  GODWIT_ASSERT(plan.samples.size() == sampled_rows_.size());
  const bool in_place = arena_.in_place();
  GODWIT_ASSERT(padded == 0 || (!in_place && decode_rows == plan.rows() && padded <= limits_.sequences));
  if (!in_place) pack(plan);
  for (int64_t row = plan.rows(); row < padded; ++row) {
    pad();
    ++decode_rows;
  }
  sampled = static_cast<int64_t>(sampled_rows_.size());
  staged_ = 0;
  view.rows = static_cast<int32_t>(row_sequence_.size());
  view.decode_rows = decode_rows;
  view.sequences = static_cast<int32_t>(sequences_.size());
  view.decode_sequences = padded > 0 ? view.sequences : plan.decode_sequences;
  view.replays = replays;
  view.sequence = stage(sequences_);
  view.row_sequence = stage(row_sequence_);
  view.ids = stage(in_place ? plan.ids : ids_);
  sampled_rows = stage(sampled_rows_);
  samples = stage(in_place ? plan.samples : samples_);
  sources = stage(sources_);  // none but after follow()
  // What follows has lengths of its own; everything before lies where the numbers of rows put it.
  view.pages = stage(in_place ? plan.pages : pages_);
  bias_ids = stage(plan.bias_ids);
  bias_values = stage(plan.bias_values);
  if (staged_ > 0) arena_.memory().upload(device_, staging_.data(), staged_);
}

}  // namespace godwit::model
