// The parts of config.json, one function each; model_config.h is what the other rooms use. `file` starts
// messages.
#pragma once

#include "config/config_reader.h"
#include "config/model_config.h"

namespace godwit {

Result<TextConfig> read_text_config(const JsonObject& object, std::string_view file);
Result<VisionConfig> read_vision_config(const JsonObject& object, std::string_view file,
                                        int64_t text_hidden_size);
// Fills `generation` and appends ids to `eos_token_ids`.
Result<void> read_generation_config(std::string_view json, ModelConfig& config);

}  // namespace godwit
