// The head: which rows get logits, and the draw (design §7, api spec §4.5 order of operations).
#pragma once

#include "kernels/step.h"
#include "sample/sampling.h"
#include "tensor/tensor.h"

namespace godwit::kernels {

// Counts, per slot and id, what a request has seen: presence in the prompt and how often it was output. Only
// requests with penalties use it. [slots, V] i32: bit 30 = in the prompt, low 30 bits = times output.
struct TokenHistory {
  int32_t* counts = nullptr;
  int64_t stride = 0;  // V
};

// In SamplingRow::slot: a row that pads a step, from which nothing is drawn.
constexpr int32_t kNoSlot = -1;

// Clears a slot's history, marks tokens[0, prompt) as prompt and counts tokens[prompt, length) as output.
struct HistoryStart {
  TokenHistory history;
  int32_t slot = 0;
  const int32_t* tokens = nullptr;  // [length]
  int64_t prompt = 0;
  int64_t length = 0;
};

// Draws one token for each logits row: bias -> penalties -> grammar mask -> temperature -> top_k -> top_p ->
// min_p -> draw. Also writes last_token[slot] and counts the draw in the history. A row that cannot be drawn
// from (NaN, +inf, or nothing finite left) gives finite = 0 and id = -1, leaves the history alone and a valid
// id, 0, in last_token.
// A scored row (SamplingRow::scored) is reported, not drawn: it touches neither history nor last_token.
// Rows of one slot (a verify) must be adjacent and in order of position: they are drawn one after the other,
// each counting in the history of the next, and the last leaves last_token. A draw is counted when it is
// made, so after a verify the history also holds the drafts that were rejected: a slot with penalties is
// started again (history_start) with what was kept, or is not drafted for.
struct Sample {
  View logits;                                // [R, V] f32, changed in place
  const sample::SamplingRow* rows = nullptr;  // [R]
  const int32_t* bias_ids = nullptr;          // all rows' logit_bias pairs, ids …
  const float* bias_values = nullptr;         // … and values
  const uint32_t* masks = nullptr;            // grammar masks, (V + 31) / 32 words each, bit set = allowed
  const uint32_t* banned = nullptr;           // [(V + 31) / 32] ids that have no token; bit set = never drawn
  const int32_t* stop_ids = nullptr;          // [stop_count] masked for rows with stop_suppressed
  int32_t stop_count = 0;
  TokenHistory history;
  int32_t* last_token = nullptr;   // [slots]
  sample::Sampled* out = nullptr;  // [R]
};

}  // namespace godwit::kernels
