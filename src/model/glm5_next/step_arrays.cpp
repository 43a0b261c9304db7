#include "model/glm5_next/step_arrays.h"

#include <cstring>

namespace godwit::model {
namespace {

constexpr int64_t kAlign = 64;
constexpr int64_t kMaxBias = 1024 + 1;  // logit_bias pairs of a request (api spec §4.5), and the tool call id

// The largest step, every array rounded up.
int64_t staging_bytes(const kernels::StepLimits& l) {
  const int64_t pages = l.sequences * ((l.context + kernels::kPageTokens - 1) / kernels::kPageTokens);
  const int64_t entries = 2 * l.rows + pages + l.logits_rows() + l.sampled_rows * 2 * kMaxBias;
  return entries * 4 + l.sequences * static_cast<int64_t>(sizeof(kernels::Sequence)) +
         l.logits_rows() * static_cast<int64_t>(sizeof(sample::SamplingRow)) + 8 * kAlign;
}

}  // namespace

StepArrays::StepArrays(Arena& arena, const kernels::StepLimits& limits) : arena_(arena) {
  sequences_.reserve(static_cast<size_t>(limits.sequences));
  row_sequence_.reserve(static_cast<size_t>(limits.rows));
  sampled_rows_.reserve(static_cast<size_t>(limits.logits_rows()));
  if (arena_.in_place()) return;
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

void StepArrays::set(const schedule::StepPlan& plan) {
  sequences_.clear();
  row_sequence_.clear();
  sampled_rows_.clear();
  int32_t decode_rows = 0;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const schedule::PlanSequence& s = plan.sequences[i];
    sequences_.push_back(s.rows);
    for (int32_t r = 0; r < s.rows.rows; ++r) row_sequence_.push_back(static_cast<int32_t>(i));
    for (int32_t r = s.rows.rows - s.sampled_rows; r < s.rows.rows; ++r)
      sampled_rows_.push_back(s.rows.row + r);
    if (kernels::is_decode_family(s.rows.kind)) decode_rows += s.rows.rows;
  }
  sampled = static_cast<int64_t>(sampled_rows_.size());
  GODWIT_ASSERT(plan.samples.size() == sampled_rows_.size());
  staged_ = 0;
  view.rows = plan.rows();
  view.decode_rows = decode_rows;
  view.sequences = static_cast<int32_t>(sequences_.size());
  view.decode_sequences = plan.decode_sequences;
  view.sequence = stage(sequences_);
  view.row_sequence = stage(row_sequence_);
  view.ids = stage(plan.ids);
  view.pages = stage(plan.pages);
  sampled_rows = stage(sampled_rows_);
  samples = stage(plan.samples);
  bias_ids = stage(plan.bias_ids);
  bias_values = stage(plan.bias_values);
  if (staged_ > 0) arena_.memory().upload(device_, staging_.data(), staged_);
}

}  // namespace godwit::model
