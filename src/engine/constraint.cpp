#include "engine/constraint.h"

#include <algorithm>

namespace godwit::engine {
namespace {

uint32_t& word_of(std::span<uint32_t> mask, int32_t id) {
  return mask[static_cast<size_t>(id) / 32];
}
uint32_t bit_of(int32_t id) {
  return 1u << (id % 32);
}

}  // namespace

void Constraint::fill(std::span<const int32_t> output, bool may_end, std::span<uint32_t> mask) {
  if (rules_.grammar && !matcher_) matcher_.emplace(rules_.grammar, rules_.thinking);
  for (; read_ < output.size(); ++read_) take(output[read_]);
  if (broken_) {
    std::fill(mask.begin(), mask.end(), 0u);
  } else if (thinking_ && rules_.thinking_budget >= 0 && thought_ >= rules_.thinking_budget) {
    std::fill(mask.begin(), mask.end(), 0u);
    word_of(mask, rules_.think_close) |= bit_of(rules_.think_close);
  } else if (matcher_) {
    matcher_->fill_mask(mask);
    if (!may_end) withhold_end(mask);
  } else {
    std::fill(mask.begin(), mask.end(), ~0u);
  }
}

void Constraint::take(int32_t id) {
  if (id == rules_.think_close || id == rules_.tool_call_open) {
    thinking_ = false;
  } else if (id == rules_.think_open) {
    thinking_ = true;
  } else if (thinking_) {
    ++thought_;
  }
  if (matcher_ && !matcher_->accept(id)) broken_ = true;
}

void Constraint::withhold_end(std::span<uint32_t> mask) const {
  const auto ends = rules_.grammar->index().end_ids();
  const bool allowed = std::any_of(ends.begin(), ends.end(),
                                   [&](int32_t id) { return (word_of(mask, id) & bit_of(id)) != 0; });
  if (!allowed) return;  // where one may end, all may
  for (const int32_t id : ends) word_of(mask, id) &= ~bit_of(id);
  if (std::any_of(mask.begin(), mask.end(), [](uint32_t word) { return word != 0; })) return;
  for (const int32_t id : ends) word_of(mask, id) |= bit_of(id);
}

}  // namespace godwit::engine
