// Sizes of one rank's share, from the configuration and the shard plan.
#pragma once

#include "config/model_config.h"
#include "kernels/step.h"
#include "weights/shard_plan.h"

namespace godwit::model {

kernels::Dims rank_dims(const TextConfig& text, const ShardPlan& plan);

}  // namespace godwit::model
