// Everything about the loaded model that requests are prepared with. Immutable; published once, when loading
// is done.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chat/template.h"
#include "config/model_config.h"
#include "engine/service.h"
#include "grammar/cache.h"
#include "tokenizer/control_ids.h"
#include "tokenizer/tokenizer.h"

namespace godwit::server {

struct ServingModel {
  std::vector<std::string> names;  // served names; the first is the default
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  tokenizer::ControlIds control_ids;
  std::shared_ptr<const chat::ChatTemplate> chat_template;
  GenerationDefaults defaults;
  std::string default_reasoning_effort;  // empty: the template's own
  int64_t default_max_tokens = 32'768;   // when a request names none
  std::optional<uint64_t> seed;          // for requests without one; else drawn for each
  int64_t created = 0;                   // Unix time, for /v1/models
  std::shared_ptr<engine::Service> service;
  std::shared_ptr<grammar::GrammarCache> grammars;  // for this tokenizer and the service's stop ids

  bool serves(std::string_view name) const;
};

}  // namespace godwit::server
