// Sizes of one rank's share, from the configuration and the shard plan.
#pragma once

#include "config/model_config.h"
#include "kernels/step.h"
#include "weights/shard_plan.h"

namespace godwit::model {

kernels::Dims rank_dims(const TextConfig& text, const ShardPlan& plan);

// Whether steps may verify drafts: the draft block is bound then, if the model has one, and has a cache.
constexpr bool drafts(const kernels::StepLimits& limits) {
  return limits.pending_rows > 1;
}

// Pools of the longest list of a row: a draft adds those completed since its list was selected.
int64_t list_pools(const kernels::Dims& dims, const kernels::StepLimits& limits);

// Of a slot: how often each token was seen, the last one, and the last one drafted.
constexpr int64_t token_bytes(const kernels::Dims& dims, const kernels::StepLimits& limits) {
  return (dims.vocab + (drafts(limits) ? 2 : 1)) * 4;
}

// `dims` as ops are prepared for: lists may be longer than what is selected.
kernels::Dims op_dims(kernels::Dims dims, const kernels::StepLimits& limits);

}  // namespace godwit::model
