#include "engine/ledger_lines.h"

#include <algorithm>

#include "engine/request.h"
#include "engine/step_log.h"

namespace godwit::engine {
namespace {

template <class T>
constexpr int64_t bytes_of_type() {
  return static_cast<int64_t>(sizeof(T));
}

}  // namespace

bool is_widened(const TensorSpec& tensor) {
  return tensor.shape.size() != 2 || tensor.name.ends_with("index_kpool_compress_ape");
}

bool is_in_place(const TensorSpec& tensor) {
  return !is_widened(tensor) && tensor.component != Component::kv_b;
}

PlacedWeights placed_weights(const LedgerModel& model, const LedgerRequest& request,
                             const ShardPlan& shards) {
  PlacedWeights fullest;
  int64_t most = -1;
  for (int64_t rank = 0; rank < shards.tp(); ++rank) {
    PlacedWeights w;
    for (const TensorSpec& tensor : model.inventory) {
      if (tensor.nextn && request.draft == 0) continue;
      const bool vision = tensor.component == Component::vision;
      if (vision && !request.vision) continue;
      const Slice slice = shards.slice(tensor, rank);
      const int64_t stored =
          totals_of(tensor.storage, model.form, slice.rows.size(), slice.columns.size()).bytes();
      (vision ? w.vision : tensor.nextn ? w.draft : w.main) += stored;
      if (!vision && is_widened(tensor))
        w.widened += slice.rows.size() * slice.columns.size() * size_of(DType::f32) - stored;
    }
    const int64_t sum = w.main + w.widened + w.draft + w.vision;
    if (sum > most) {
      most = sum;
      fullest = w;
    }
  }
  return fullest;
}

int64_t mask_bytes(const kernels::StepLimits& limits, int64_t vocabulary) {
  return limits.sampled_rows * ((vocabulary + 31) / 32) * bytes_of_type<uint32_t>();
}

int64_t step_buffer_bytes(const schedule::ScheduleLimits& s, const kernels::StepLimits& limits,
                          int64_t vocabulary) {
  const int64_t per_sequence =
      bytes_of_type<schedule::PlanSequence>() + 2 * bytes_of_type<schedule::SnapshotCommand>() +
      kMaxLogitBias * (bytes_of_type<int32_t>() + bytes_of_type<float>()) +
      cache::pages_for(s.context) * bytes_of_type<int32_t>() + bytes_of_type<kernels::Sequence>();
  const int64_t per_sampled =
      bytes_of_type<sample::SamplingRow>() + 2 * bytes_of_type<sample::Sampled>() + bytes_of_type<int32_t>();
  return StepLog::bytes(s.max_sequences) + s.max_sequences * per_sequence +
         limits.logits_rows() * per_sampled + limits.rows * 2 * bytes_of_type<int32_t>() +
         mask_bytes(limits, vocabulary);
}

int64_t cache_index_bytes(int64_t pages, int64_t slots, int64_t snapshots) {
  constexpr int64_t kIndex = bytes_of_type<int32_t>();
  // A node, its ids, at most two hash buckets, its place in the order of eviction, in the pool and in the
  // list of freed ones.
  const int64_t page = bytes_of_type<cache::TreeNode>() + cache::kPageTokens * kIndex + 4 * kIndex +
                       cache::EvictionOrder::bytes_per_item();
  constexpr int64_t kSnapshot = 8 * kIndex + cache::EvictionOrder::bytes_per_item();
  return pages * page + (slots + snapshots) * kSnapshot;
}

int64_t copy_queue_bytes(int64_t pages, int64_t slots, const cache::HostSizes& host) {
  return cache::CopyQueue::bytes(int64_t{host.pages} + host.snapshots + host.slots, pages + slots);
}

}  // namespace godwit::engine
