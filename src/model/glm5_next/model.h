// Model: one rank's glm5_next, written once against kernels::Ops. forward() is the whole text model over a
// StepPlan.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/comm.h"
#include "model/glm5_next/host_pool.h"
#include "model/glm5_next/state.h"
#include "model/glm5_next/step_arrays.h"
#include "model/glm5_next/weights.h"
#include "model/glm5_next/workspace.h"
#include "schedule/mask_source.h"
#include "schedule/step_plan.h"

namespace godwit::model {

struct ModelOptions {
  kernels::StepLimits limits;
  DType kv_dtype = DType::f32;
  int64_t pages = 0;  // the reserved page 0 included
  int64_t slots = 0;  // the reserved slot 0 included
  int64_t snapshots = 0;
  cache::HostSizes host;  // second tier, in host memory
};

// Bytes a rank allocates besides its weights, as a pure function of sizes (design §8).
struct ModelBytes {
  int64_t pages = 0;
  int64_t slots = 0;
  int64_t snapshots = 0;
  int64_t workspace = 0;  // activations
  int64_t scratch = 0;    // of the ops
};
ModelBytes price(const TextConfig& text, const ShardPlan& plan, const ModelOptions& options,
                 const kernels::Ops& ops);

// The numbers of rows that record_steps() records a step for, ascending.
std::vector<int64_t> recorded_rows(const kernels::StepLimits& limits);

// Looks into a forward pass: goldens and `debug` only. Views hold the rows of the step, in host memory and
// for the call only.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void after_layer(int layer, const View& streams) = 0;                    // [T, n D]
  virtual void after_select(int layer, const View& pools, const View& count) = 0;  // DSA layers
  virtual void after_route(int layer, const View& ids, const View& weights) = 0;   // MoE layers
  virtual void before_sample(const View& hidden,
                             const View& logits) = 0;  // [R, D] Ops::activations(), [R, V]
};

// Pieces of a forward pass. `bench step` times a part by running it alone.
struct Parts {
  bool kda = true, dsa = true, ffn = true, mhc = true,
       head = true;  // the ends (embedding, draws) with the head
};

class Model {
 public:
  // Prepares `ops` and allocates every buffer. `checkpoint` and `ops` must outlive the model.
  static Result<std::unique_ptr<Model>> load(const Checkpoint& checkpoint, const ModelConfig& config,
                                             const ShardPlan& plan, kernels::Ops& ops, comm::Comm& comm,
                                             const ModelOptions& options, const ReadOptions& reads = {});

  // The same with weights that are already in the memory of `ops`.
  static Result<std::unique_ptr<Model>> assemble(std::shared_ptr<const ModelWeights> weights,
                                                 const ModelConfig& config, const ShardPlan& plan,
                                                 kernels::Ops& ops, comm::Comm& comm,
                                                 const ModelOptions& options);

  // Runs one step and fills out[0 … plan.samples): one draw for each logits row. Allocates nothing. `masks`
  // is needed when a sample has one.
  void forward(const schedule::StepPlan& plan, sample::Sampled* out, schedule::MaskSource* masks = nullptr);

  // On a device: records the steps of plain decoding for a few numbers of sequences, up to the limit.
  // forward() then replays the next larger one instead of launching its ops; what is too many is padding.
  // Once, after set_vocabulary(). Also runs a slice of a prompt.
  void record_steps();
  int64_t recorded_steps() const { return static_cast<int64_t>(recordings_.size()); }

  // The three pieces of forward(), for whoever records the middle one: moves, restores and the step's arrays
  // (padded to so many rows); all ops; draws and snapshots.
  void begin(const schedule::StepPlan& plan, int64_t padded = 0);
  void compute(const Parts& parts = {}, schedule::MaskSource* masks = nullptr);
  void end(const schedule::StepPlan& plan, sample::Sampled* out);

  // One draft for each sequence that draws in `plan` (glm5_next spec §13.4), into out[0 … plan.samples);
  // draws are greedy and count in no history. A row at position i is the pair of the hidden state of position
  // i and the token behind it, so plan.ids are shifted by one against the step that computed the hidden
  // states; kFromSlot is the token drawn last, in the first step, or drafted last. Entries of the draft
  // layer's caches lie at i. ahead = 0: the first draft, right behind forward(), of rows it computed (a
  // prompt's slices and what a verify kept); all of them must come, since each leaves its entry in the
  // caches. A sequence draws at its last row or not at all. ahead = k: draft k + 1, one row for each that
  // drew before, in that order, k positions on.
  void draft(const schedule::StepPlan& plan, int32_t ahead, sample::Sampled* out);
  // Its pieces, as those of forward().
  void begin_draft(const schedule::StepPlan& plan, int32_t ahead);
  void compute_draft();
  void end_draft(const schedule::StepPlan& plan, sample::Sampled* out);

  // Slots whose copy from the host tier failed its checksum in the last step: their rows are worthless.
  const std::vector<int32_t>& damaged() const { return damaged_; }
  int64_t copied_ns() const { return copied_ns_; }  // that the step's copies between the tiers took

  // Starts a slot's token history: tokens[0, prompt) are the prompt, the rest was output before (a resumed or
  // recomputed request). Only for requests whose sampling needs it.
  void start_history(int32_t slot, const std::vector<int32_t>& tokens, int64_t prompt);

  // Ids that exist in lm_head but have no token are never drawn (api spec §1.5); and the model's own stop
  // ids.
  void set_vocabulary(const std::vector<bool>& has_token, const std::vector<int32_t>& stop_ids);
  void observe(Observer* observer) { observer_ = observer; }

  const kernels::Dims& dims() const { return dims_; }
  const StateLayout& layout() const { return state_->layout(); }
  int64_t mask_bytes() const { return (dims_.vocab + 31) / 32 * 4; }  // of one row
  const RankState& state() const { return *state_; }
  View logits() const { return ws_.head.logits; }  // of the newest step or draft, [R, V]
  int64_t weight_bytes() const { return weights_->bytes; }
  int64_t state_bytes() const { return state_->bytes(); }

 private:
  Model(const ModelConfig& config, kernels::Ops& ops, comm::Comm& comm, const ModelOptions& options);

  // layers.cpp: a sublayer reads ws_.normed and writes ws_.y, summed over ranks.
  void kda(int layer, const KdaWeights& w);
  // With ahead > 0 rows reuse what the first draft selected and leave nothing to select from.
  void dsa(int layer, const DsaWeights& w, int32_t ahead = 0);
  void ffn(int layer, const LayerWeights& w);
  // head.cpp
  void head(schedule::MaskSource* masks);
  void sample_rows(int64_t first, int64_t rows, kernels::Sample& s);
  void draw(const View& normed, kernels::Sample& s);
  // mtp.cpp
  void pair_inputs(const DraftWeights& w);
  void draft_head(const DraftWeights& w);
  // The recording that can do this step, or null.
  struct Recorded {
    int64_t rows = 0;
    std::unique_ptr<kernels::Recording> steps;
  };
  const Recorded* recorded(const schedule::StepPlan& plan) const;
  void run_slice();
  // A view an observer can read: downloaded into `mirror` where the host cannot address it.
  View on_host(const View& v, Buffer& mirror) const;

  const TextConfig text_;
  kernels::Ops& ops_;
  comm::Comm& comm_;
  ModelOptions options_;
  kernels::Dims dims_;
  std::shared_ptr<const ModelWeights> weights_;
  std::unique_ptr<RankState> state_;
  std::unique_ptr<HostPool> host_;
  std::vector<int32_t> damaged_;
  int64_t copied_ns_ = 0;
  Workspace ws_;
  Observer* observer_ = nullptr;

  Arena arena_;  // what follows lives in it
  StepArrays step_arrays_;
  kernels::StepView step_;  // of step_arrays_
  int64_t rows_ = 0;
  int64_t target_rows_ = 0;             // of the newest forward(), whose streams are still there
  int32_t ahead_ = 0;                   // of the newest draft
  std::vector<uint32_t> banned_words_;  // [(V + 31) / 32]
  const uint32_t* banned_ = nullptr;    // the same, placed
  std::vector<int32_t> stop_words_;
  const int32_t* stop_ids_ = nullptr;
  // Device backends only, else null: where start_history() sends tokens [context], where a step's masks go
  // [R][(V + 31) / 32].
  int32_t* history_tokens_ = nullptr;
  uint32_t* masks_ = nullptr;
  int32_t* drafted_ = nullptr;          // [slots] tokens drafted last; null when nothing is drafted
  sample::Sampled* sampled_ = nullptr;  // where draws are made [R]
  Buffer mirrors_[2];                   // for observers
  std::vector<Recorded> recordings_;    // rows ascending
};

}  // namespace godwit::model
