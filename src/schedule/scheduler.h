// Scheduler: which sequence gets which rows in the next step (design §3, §8). It knows neither HTTP nor text
// nor tensors, so the simulator drives this very code with a virtual clock.
//
// Every step carries all rows of the decode family that can run, plus prompt rows up to `prefill_tokens`.
// Admission reserves prompt + min(max_tokens, 4,096) positions and grows in steps of 4,096; when growth
// fails, the sequence that joined last gives everything back and is recomputed later: its prompt as prefill
// rows, what it had drawn as forced rows, so its tokens do not change.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "cache/cache.h"
#include "schedule/sequence.h"
#include "schedule/step_plan.h"

namespace godwit::schedule {

struct ScheduleLimits {
  int64_t context = 0;        // tokens a sequence may have
  int64_t max_sequences = 0;  // running at once
  int64_t max_waiting = 0;
  int64_t prefill_tokens = 0;  // prompt rows a step may carry; a multiple of 64
  int64_t forced_rows = 64;    // forced rows a step may carry
  // Prompt tokens between snapshots that only mark the end of a slice. A snapshot costs as much memory as the
  // cache entries of 2,800 to 5,500 tokens of the real model (design §9), so closer ones would not pay.
  int64_t snapshot_stride = 4096;
};

// What happened to a sequence. Called on the engine thread while a step is applied.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void on_admit(Sequence& sequence) = 0;  // it holds a lease; before its first row
  virtual void on_token(Sequence& sequence, const sample::Sampled& drawn) = 0;
  // Takes the sequence: its lease is already returned.
  virtual void on_end(std::unique_ptr<Sequence> sequence, FinishReason reason, int32_t stop_id,
                      std::optional<Error> error) = 0;
};

class Scheduler {
 public:
  Scheduler(const ScheduleLimits& limits, cache::Cache& cache, std::vector<int32_t> stop_ids,
            const Clock& clock, Listener& listener);

  // False when the waiting line is full.
  bool add(std::unique_ptr<Sequence> sequence);
  // Ends cancelled and overdue sequences, admits waiting ones and fills `plan`. The caller has set `paused`
  // and `cancelled`.
  void plan(StepPlan& plan);
  // Takes the draws of the planned step, one for each entry of plan.samples. `damaged`: slots whose copy from
  // the host tier failed its checksum; their requests are computed again from nothing.
  void apply(const StepPlan& plan, const sample::Sampled* drawn, std::span<const int32_t> damaged = {});
  // Ends everything with `error`: the engine is dying or its drain deadline has passed.
  void fail_all(const Error& error);

  template <class F>
  void for_each(F&& f) {
    for (auto& s : running_) f(*s);
    for (auto& s : waiting_) f(*s);
  }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  bool idle() const { return running_.empty() && waiting_.empty(); }

 private:
  void sweep();
  void admit();
  bool reserve(size_t index, int64_t tokens);
  void preempt(size_t index);
  size_t find(uint64_t number, size_t from) const;
  void plan_decode(StepPlan& plan);
  int64_t slice_end(const Sequence& s, int64_t budget) const;
  void plan_prefill(StepPlan& plan);
  void add_rows(StepPlan& plan, Sequence& s, kernels::RowKind kind, int64_t rows);
  void end(size_t index, FinishReason reason, int32_t stop_id, std::optional<Error> error);
  bool stops(const Sequence& s, int32_t id) const;

  ScheduleLimits limits_;
  cache::Cache& cache_;
  std::vector<int32_t> stop_ids_;
  const Clock& clock_;
  Listener& listener_;
  std::vector<std::unique_ptr<Sequence>> running_;  // in the order they joined
  std::vector<std::unique_ptr<Sequence>> waiting_;  // by priority, then arrival
};

}  // namespace godwit::schedule
