#include "sample/processors.h"

#include <cmath>
#include <limits>

namespace godwit::sample {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

bool test_bit(const uint32_t* words, int64_t i) {
  return (words[i / 32] >> (i % 32)) & 1u;
}

// Repetition: ids seen in prompt or output, towards less likely on both sides of zero. Presence and
// frequency: ids that were output (api spec §4.5).
void apply_penalties(float* logits, int64_t vocab, const SamplingRow& row, const int32_t* history) {
  for (int64_t i = 0; i < vocab; ++i) {
    if (history[i] == 0) continue;
    const int32_t times = history[i] & (kInPrompt - 1);
    float& l = logits[i];
    l = l > 0 ? l / row.repetition_penalty : l * row.repetition_penalty;
    if (times > 0) l -= row.presence_penalty + row.frequency_penalty * static_cast<float>(times);
  }
}

void apply_masks(float* logits, int64_t vocab, const SamplingRow& row, const RowContext& c) {
  for (int64_t i = 0; i < vocab; ++i) {
    const bool refused = (c.mask && !test_bit(c.mask, i)) || (c.banned && test_bit(c.banned, i));
    if (refused) logits[i] = kNever;
  }
  if (!row.stop_suppressed) return;
  for (int32_t i = 0; i < c.stop_count; ++i) logits[c.stop_ids[i]] = kNever;
}

}  // namespace

bool is_finite_row(const float* logits, int64_t vocab) {
  for (int64_t i = 0; i < vocab; ++i) {
    if (!(logits[i] < std::numeric_limits<float>::infinity())) return false;
  }
  return true;
}

bool process_logits(float* logits, int64_t vocab, const SamplingRow& row, const RowContext& c) {
  // First, because a mask would hide what the model computed at a masked id.
  if (!is_finite_row(logits, vocab)) return false;
  for (int32_t i = 0; i < row.bias_count; ++i) logits[c.bias_ids[i]] += c.bias_values[i];
  if (c.history) apply_penalties(logits, vocab, row, c.history);
  if (c.mask || c.banned || row.stop_suppressed) apply_masks(logits, vocab, row, c);
  bool drawable = false;
  for (int64_t i = 0; i < vocab; ++i) {
    // Bias and penalties of a huge logit may overflow; exp(inf - inf) is no probability.
    if (!(logits[i] < std::numeric_limits<float>::infinity())) return false;
    drawable |= logits[i] > kNever;
  }
  return drawable;
}

}  // namespace godwit::sample
