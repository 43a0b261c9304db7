// Rig: a model and nothing around it. Goldens, gates and benches drive forward() through it with hand-made
// StepPlans.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "model/glm5_next/model.h"

namespace godwit::selftest {

struct RigOptions {
  std::string_view backend = "cpu";  // cpu | reference | cuda
  int threads = 0;
  int64_t context = 4096;
  int64_t slots = 4;         // usable ones
  int64_t rows = 512;        // of a step
  DType cache = DType::f32;  // format of the caches (kernels/cache_format.h)
  int64_t drafts = 0;        // of a sequence; more than 0: the draft block is loaded
};

class Rig {
 public:
  static Result<std::unique_ptr<Rig>> open(const std::filesystem::path& model_dir, const RigOptions& options);

  // A piece of a step: rows ids[0, n) at positions first, first + 1, … of a slot.
  struct Rows {
    int32_t slot = 1;  // 1 … slots
    kernels::RowKind kind = kernels::RowKind::prefill;
    int64_t first = 0;
    std::span<const int32_t> ids;
    int32_t sampled = 1;  // trailing rows that get logits
  };
  // Runs one step, decode family first; greedy draws of all sampled rows in order.
  std::vector<sample::Sampled> step(std::span<const Rows> rows);
  // One draft of each piece that samples its last row (model::Model::draft). ids are shifted by one against
  // those of the step that computed the rows; kernels::kFromSlot is what was drawn or drafted last.
  std::vector<sample::Sampled> draft(std::span<const Rows> rows, int32_t ahead);
  // A whole prompt in slices of `slice` rows (a multiple of 64), then `steps` greedy decode rows; stop ids do
  // not stop.
  std::vector<int32_t> greedy(int32_t slot, std::span<const int32_t> prompt, int64_t slice, int64_t steps);

  const ModelConfig& config() const { return config_; }
  model::Model& model() { return *model_; }

 private:
  Rig() = default;
  schedule::StepPlan plan_of(std::span<const Rows> rows) const;
  ModelConfig config_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<kernels::Ops> ops_;
  comm::Solo comm_;
  std::unique_ptr<model::Model> model_;
  RigOptions options_;
  int64_t pages_per_slot_ = 0;
};

}  // namespace godwit::selftest
