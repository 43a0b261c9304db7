// What changes the logits of a row before the draw, in this order: logit_bias, penalties, grammar mask (and
// with it banned and suppressed ids). Temperature and the cuts belong to the draw (sample/draw.h).
#pragma once

#include <cstdint>

#include "sample/sampling.h"

namespace godwit::sample {

// In a history row: the id occurs in the prompt; the low 30 bits count how often it was output.
constexpr int32_t kInPrompt = 1 << 30;

// What a row's processors read, all views of one row. Null pointers switch a processor off.
struct RowContext {
  const int32_t* bias_ids = nullptr;   // [row.bias_count] in [0, vocab)
  const float* bias_values = nullptr;  // [row.bias_count]
  const int32_t* history = nullptr;    // [vocab], see kInPrompt
  const uint32_t* mask = nullptr;      // [(vocab + 31) / 32] grammar mask, bit set = allowed
  const uint32_t* banned = nullptr;    // [(vocab + 31) / 32] bit set = never drawn
  const int32_t* stop_ids = nullptr;   // [stop_count] masked when row.stop_suppressed
  int32_t stop_count = 0;
};

// Whether every logit is a number below +inf.
bool is_finite_row(const float* logits, int64_t vocab);

// Changes logits [vocab] in place. False when the row cannot be drawn from: it held NaN or +inf, or nothing
// finite is left.
bool process_logits(float* logits, int64_t vocab, const SamplingRow& row, const RowContext& context);

}  // namespace godwit::sample
