// Scheduler: which sequence gets which rows in the next step (design §3, §8; docs/scheduling.md). It knows
// neither HTTP nor text nor tensors, so the simulator drives this very code with a virtual clock.
//
// There is one order: submission time plus a head start for each level of priority. Admission goes along it,
// memory is taken back against it, and because it never changes, nobody can be overtaken for ever.
// Every step carries all rows of the decode family that can run, plus as many prompt rows as the step-cost
// model says fit into the inter-token target; the shortest and the first prompt share them.
// Admission reserves prompt + min(max_tokens, 4,096) positions and grows in steps of 4,096; when growth
// fails, the last in the order gives everything back and is recomputed later: its prompt as prefill rows,
// what it had drawn as forced rows, so its tokens do not change.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "cache/cache.h"
#include "schedule/sequence.h"
#include "schedule/step_cost.h"
#include "schedule/step_plan.h"

namespace godwit::schedule {

// One level of priority is worth so much waiting time; levels beyond the outermost count as the outermost. A
// request is overtaken only by requests submitted at most 5 s per level of difference after it: 320 s at
// most.
constexpr int64_t kPriorityHeadStartNs = 5'000'000'000;
constexpr int32_t kOutermostPriority = 32;

struct ScheduleLimits {
  int64_t context = 0;        // tokens a sequence may have
  int64_t max_sequences = 0;  // running at once
  int64_t max_waiting = 0;
  int64_t prefill_tokens = 0;  // prompt rows a step may carry; a multiple of 64
  int64_t forced_rows = 64;    // forced rows a step may carry
  // Prompt tokens between snapshots that only mark the end of a slice. A snapshot costs as much memory as the
  // cache entries of 2,800 to 5,500 tokens of the real model (design §9), so closer ones would not pay.
  int64_t snapshot_stride = 4096;
  int64_t itl_target_ns = 30'000'000;  // a step that streams wait for should not take longer
};

// What happened to a sequence. Called on the engine thread while a step is applied.
class Listener {
 public:
  virtual ~Listener() = default;
  // It holds a lease; before its first row. Sets `paused` when its reader has no room (after a preemption).
  virtual void on_admit(Sequence& sequence) = 0;
  // A row of a masked sequence is planned whose draw needs a mask: sets row.mask.
  virtual void on_masked_row(Sequence&, sample::SamplingRow&) {}
  // A row of a scored prompt was computed: `drawn` is about the next id of the prompt.
  virtual void on_score(Sequence&, const sample::Sampled&) {}
  virtual void on_token(Sequence& sequence, const sample::Sampled& drawn) = 0;
  // Takes the sequence: its lease is already returned.
  virtual void on_end(std::unique_ptr<Sequence> sequence, FinishReason reason, int32_t stop_id,
                      Failure failure) = 0;
};

// How the copies of a step between the tiers went.
struct Copied {
  int64_t ns = 0;  // that they took of the step
  // Slots of leases whose copy from the host failed its checksum; their requests are computed again from
  // nothing.
  std::span<const int32_t> damaged;
};

class Scheduler {
 public:
  Scheduler(const ScheduleLimits& limits, cache::Cache& cache, std::vector<int32_t> stop_ids,
            const Clock& clock, Listener& listener);

  // Gives a plan all the storage it will ever need; once, before its first plan().
  void prepare(StepPlan& plan) const;
  // False when the waiting line is full.
  bool add(std::unique_ptr<Sequence> sequence);
  // Ends cancelled and overdue sequences, admits waiting ones and fills `plan`. The caller has set `paused`
  // and `cancelled`.
  void plan(StepPlan& plan);
  // Takes the draws of the planned step, one for each entry of plan.samples. The time since plan() is what
  // the step took.
  void apply(const StepPlan& plan, const sample::Sampled* drawn, const Copied& copied = {});
  // Ends everything: the engine is dying or its drain deadline has passed.
  void fail_all(Failure failure);

  // Every running sequence, and the part of the waiting line that the next plan() looks at: a line of a
  // thousand is seen once in 16 steps, and a step costs the same however long it is.
  template <class F>
  void for_each(F&& f) {
    for (auto& s : running_) f(*s);
    for (size_t i = 0; i < window(); ++i) f(*waiting_[(looked_at_ + i) % waiting_.size()]);
  }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  uint64_t preemptions() const { return preemptions_; }
  // Prompt rows that the last step with prompts was allowed.
  int64_t prefill_budget() const { return prefill_budget_; }
  // Nothing is left to do: no request, and no copy that one of them left behind.
  bool idle() const { return running_.empty() && waiting_.empty() && !cache_.copying(); }

 private:
  static constexpr size_t kWindow = 64;
  size_t window() const { return std::min(kWindow, waiting_.size()); }

  void sweep();
  void admit();
  int64_t headroom() const;
  void grow();
  void reserve(size_t index, int64_t tokens);
  enum class Keep { what_is_good, nothing };
  void preempt(size_t index, Keep keep = Keep::what_is_good);
  void take_copies(std::span<const int32_t> damaged);
  bool runs(const Sequence& s) const;
  void plan_decode(StepPlan& plan);
  void plan_prefill(StepPlan& plan);
  int64_t slice_end(const Sequence& s, int64_t budget) const;
  int64_t add_slice(StepPlan& plan, Sequence& s, int64_t budget);
  void add_rows(StepPlan& plan, Sequence& s, kernels::RowKind kind, int64_t rows);
  void add_samples(StepPlan& plan, Sequence& s, int64_t first, int64_t end);
  bool take_scores(Sequence& s, const sample::Sampled* scores, int32_t count);
  void end(Sequence& s, FinishReason reason, int32_t stop_id, Failure failure);
  bool stops(const Sequence& s, int32_t id) const;

  ScheduleLimits limits_;
  cache::Cache& cache_;
  std::vector<int32_t> stop_ids_;
  const Clock& clock_;
  Listener& listener_;
  StepCost cost_;
  int64_t planned_ns_ = 0;                          // when the step now running was planned
  std::vector<std::unique_ptr<Sequence>> running_;  // both in the one order
  std::vector<std::unique_ptr<Sequence>> waiting_;
  std::vector<Sequence*> by_slot_;  // [slots] whose it is
  uint64_t preemptions_ = 0;
  int64_t prefill_budget_ = 0;
  double scored_weight_ = 1;      // plain prompt rows that a scored one takes as long as
  size_t looked_at_ = 0;          // where in the waiting line the next sweep starts
  uint64_t refused_ = 0;          // number of the head of the line when it did not fit …
  int64_t refused_pages_ = 0;     // … into so many pages …
  uint64_t refused_leaving_ = 0;  // … and this was the newest copy to the host that had to be made; 0: none
};

}  // namespace godwit::schedule
