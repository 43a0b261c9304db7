// What the lines of the ledger are made of; for ledger.cpp.
#pragma once

#include "engine/ledger.h"
#include "weights/shard_plan.h"

namespace godwit::engine {

// Weights of the fullest rank as the model places them: matrices as they are stored, the small parameters
// widened to f32 (model/glm5_next/weights.cpp).
struct PlacedWeights {
  int64_t main = 0;
  int64_t widened = 0;  // what widening adds, all parts together
  int64_t draft = 0;
  int64_t vision = 0;
};
PlacedWeights placed_weights(const LedgerModel& model, const LedgerRequest& request, const ShardPlan& shards);

// True when the model keeps an f32 copy of the tensor instead of the stored bytes.
bool is_widened(const TensorSpec& tensor);
// True when the model reads the stored bytes in place; kv_b is taken apart into two copies instead.
bool is_in_place(const TensorSpec& tensor);

// Masks of the draws of one step.
int64_t mask_bytes(const kernels::StepLimits& limits, int64_t vocabulary);
// Host memory of the plan, the draws, the masks and the model's step arrays; the same reserves as Engine and
// Model make.
int64_t step_buffer_bytes(const schedule::ScheduleLimits& schedule, const kernels::StepLimits& limits,
                          int64_t vocabulary);
// Host memory of a prefix tree and the index pools: of the device's pages, or of the host tier's.
int64_t cache_index_bytes(int64_t pages, int64_t slots, int64_t snapshots);
// Host memory of the copies that wait between the two.
int64_t copy_queue_bytes(int64_t pages, int64_t slots, const cache::HostSizes& host);

}  // namespace godwit::engine
