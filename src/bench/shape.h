// Models that `godwit bench step` knows without a checkpoint.
#pragma once

#include <string>

#include "config/model_config.h"

namespace godwit::bench {

// "glm-5.3-flash", or the path of a config.json. usage when there is neither.
Result<ModelConfig> read_shape(const std::string& shape);

}  // namespace godwit::bench
