// What the server hands to the engine. Everything is validated before; the engine never sees a bad request
// (design §6).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/token_sink.h"

namespace godwit::grammar {
class Grammar;
}

namespace godwit::engine {

constexpr int64_t kMaxLogitBias = 1024;  // pairs a request may bring: the plan has room for so many of each

struct SamplingParams {
  float temperature = 1;  // 0 = greedy
  float top_p = 1;
  float min_p = 0;
  int32_t top_k = 0;  // 0 = off
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  uint64_t seed = 0;          // drawn and reported by the server when the client gave none
  int32_t top_logprobs = -1;  // -1 = no logprobs; 0…20
  std::vector<std::pair<int32_t, float>> logit_bias;  // at most kMaxLogitBias

  bool needs_history() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
};

struct StopRules {
  std::vector<int32_t> stop_ids;  // request stop_token_ids; the model's own stop ids are the engine's
  bool ignore_eos = false;        // the model's own stop ids do not stop
  int64_t min_tokens = 0;         // before that the model's stop ids are masked
  int64_t max_tokens = 0;         // >= 1, prompt + max_tokens <= context
};

// What the output must be beyond sampling (docs/structured_output.md): the rows of a request with such rules
// are masked.
struct OutputRules {
  std::shared_ptr<const grammar::Grammar> grammar;  // null: any output
  bool thinking = false;         // the prompt ends inside a think block; the grammar begins after it
  int64_t thinking_budget = -1;  // ids that may be thought before </think> is forced; -1: any number
  int32_t think_open = -1;       // control ids; think_close exists when there is a budget
  int32_t think_close = -1;
  int32_t tool_call_open = -1;  // ends thinking, too; -1 when calls are not read

  bool any() const { return grammar != nullptr || thinking_budget >= 0; }
};

// Feature rows that replace the embedding at [first, first + rows) of the prompt.
struct MediaEmbedding {
  int64_t first = 0;
  int64_t rows = 0;
  std::shared_ptr<const std::vector<float>> features;  // [rows, hidden]
  uint64_t hash = 0;                                   // part of the prefix-cache key
};

struct Request {
  std::string id;               // x-request-id of the exchange, for logs and dumps
  std::vector<int32_t> prompt;  // >= 1 id
  std::vector<MediaEmbedding> media;
  SamplingParams sampling;
  StopRules stop;
  OutputRules rules;
  // Log probabilities of the prompt's ids after the first, sampling.top_logprobs alternatives each, go to the
  // sink before the first token. Such a prompt is computed as a whole: no prefix of it comes from the cache.
  bool prompt_logprobs = false;
  uint32_t prompt_index = 0;  // Philox key (design §7)
  uint32_t choice_index = 0;
  std::vector<int32_t> forced;  // resume: ids another replica has already sent, run as forced rows
  int32_t priority = 0;         // lower runs first
  int64_t deadline_ns = 0;      // engine clock; 0 = none
  uint64_t cache_salt = 0;      // keeps tenants' prefixes apart
  // cache::block_keys(prompt, cache_salt), from whoever has a thread for it; empty: submit() makes them.
  std::vector<uint64_t> block_keys;
  uint64_t session = 0;
  std::shared_ptr<TokenSink> sink;
};

}  // namespace godwit::engine
