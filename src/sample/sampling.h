// What a draw needs and what it gives: plain data, shared by the engine, the step plan and every backend.
#pragma once

#include <cstdint>

namespace godwit::sample {

constexpr int32_t kMaxTopLogprobs = 20;

// One row to draw from. The draw is keyed by (seed, prompt, choice, position) and by nothing else, so that
// batching, caching and drafting never change it (design §7).
struct SamplingRow {
  uint64_t seed = 0;
  int64_t position = 0;       // absolute position of the token to be drawn
  uint32_t prompt_index = 0;  // which prompt of the request
  uint32_t choice_index = 0;  // which of its n choices
  float temperature = 1;      // 0 = greedy: argmax, ties to the lower id
  float top_p = 1;            // (0, 1]
  float min_p = 0;            // [0, 1]
  int32_t top_k = 0;          // 0 = off
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  int32_t slot = 0;         // state slot
  int32_t history = 0;      // 1: the penalties need the slot's token history
  int32_t bias_offset = 0;  // its logit_bias pairs
  int32_t bias_count = 0;
  int32_t mask = -1;            // index of its grammar mask; -1 = none
  int32_t top_logprobs = -1;    // -1 = no logprobs; 0…20 alternatives
  int32_t stop_suppressed = 0;  // 1: the model's stop ids are masked (min_tokens not reached yet)
  // A row of a prompt whose log probabilities are asked for: the id that comes next in it. Nothing is drawn;
  // -1: a draw.
  int32_t scored = -1;
};

// logprobs are those of the distribution after bias, penalties and mask, before temperature: what the model
// says. Of a scored row: of its logits as they are, with `id` the id that was scored.
struct Sampled {
  int32_t id = -1;
  float logprob = 0;
  int32_t finite = 1;  // 0: the row held NaN or only -inf: its request fails alone (design §1)
  int32_t top_count = 0;
  int32_t top_ids[kMaxTopLogprobs];
  float top_logprobs[kMaxTopLogprobs];
};

}  // namespace godwit::sample
