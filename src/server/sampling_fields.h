// The fields that /v1/chat/completions and /v1/completions share (api spec §4.5): sampling, stopping,
// streaming.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "engine/request.h"
#include "server/fields.h"

namespace godwit::server {

struct CommonFields {
  std::string model;                // as sent; empty when missing
  engine::SamplingParams sampling;  // seed filled: the client's, else `drawn_seed`
  engine::StopRules stop;           // max_tokens still 0 when the client named none
  std::vector<std::string> stop_strings;
  bool include_stop = false;
  bool skip_special_tokens = true;
  int32_t n = 1;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  int32_t priority = 0;
  int64_t timeout_ms = 0;  // from the request's arrival; 0 = none
  uint64_t cache_salt = 0;
};

struct CommonLimits {
  GenerationDefaults defaults;  // where the client says nothing (api spec §1.5)
  int64_t context = 0;
  int64_t fewest_tokens = 1;  // that max_tokens may ask for
  int32_t vocabulary = 0;     // ids below it exist
  uint64_t drawn_seed = 0;
};

constexpr int32_t kMaxChoices = 16;

// Refusals are kept in `fields`. Not read here: logprobs, whose form differs between the two routes.
CommonFields read_common_fields(Fields& fields, const CommonLimits& limits);

}  // namespace godwit::server
