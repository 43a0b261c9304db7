// World: requests, a virtual clock and the real schedule and cache over a ShadowModel. Checks every request's
// tokens against the ones it gets alone, and the pools against leaks.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "schedule/scheduler.h"
#include "shadow_model.h"
#include "step_costs.h"

namespace godwit::simulator {

struct Ended {
  schedule::FinishReason reason = schedule::FinishReason::stop;
  std::vector<int32_t> tokens;  // prompt and drawn
  int64_t prompt = 0;
  schedule::Failure failure = schedule::Failure::none;
};

class World final : public schedule::Listener {
 public:
  World(const schedule::ScheduleLimits& limits, int32_t pages, std::vector<int32_t> stop_ids = {},
        int32_t snapshots = 0, cache::HostSizes host = {})
      : limits_(limits),
        cache_({pages + 1, static_cast<int32_t>(limits.max_sequences) + 1, snapshots, host,
                StepCosts::kRecordBytes}),
        scheduler_(limits, cache_, std::move(stop_ids), clock_, *this),
        model_(pages + 1, static_cast<int32_t>(limits.max_sequences) + 1, snapshots, host) {
    scheduler_.prepare(plan_);
  }

  std::unique_ptr<schedule::Sequence> make(std::vector<int32_t> prompt, int64_t max_tokens,
                                           uint64_t salt = 0) {
    auto s = std::make_unique<schedule::Sequence>();
    s->number = next_number_++;
    s->prompt_tokens = static_cast<int64_t>(prompt.size());
    s->forced_end = s->prompt_tokens;
    s->keys = cache::block_keys(prompt, salt);
    s->tokens = std::move(prompt);
    s->max_tokens = max_tokens;
    s->sampling.seed = s->number;
    s->submitted_ns = clock_.now_ns();
    return s;
  }
  // The request's number; 0 when the line was full.
  uint64_t add(std::unique_ptr<schedule::Sequence> s) {
    const uint64_t number = s->number;
    return scheduler_.add(std::move(s)) ? number : 0;
  }

  // One step; false when nothing could be planned.
  bool step() {
    scheduler_.plan(plan_);
    const int64_t copies = copies_are_free ? 0 : StepCosts::copy_ns(plan_);
    clock_.advance_ns((cost ? cost(plan_) : 1'000'000) + copies);
    if (plan_.empty()) return false;
    int64_t prefill = 0;
    for (size_t i = static_cast<size_t>(plan_.decode_sequences); i < plan_.sequences.size(); ++i)
      prefill += plan_.sequences[i].rows.rows;
    longest_prefill_ = std::max(longest_prefill_, prefill);
    model_.run(plan_, drawn_);
    scheduler_.apply(plan_, drawn_.data(), {copies, model_.damaged});
    return true;
  }
  void run(int64_t most_steps = 1'000'000) {
    while (!scheduler_.idle() && most_steps-- > 0) step();
  }

  // Does what a request got equal what it gets alone?
  static bool as_alone(const Ended& e, uint64_t seed) {
    ShadowModel::Alone alone;
    for (size_t i = 0; i < e.tokens.size(); ++i) {
      if (i >= static_cast<size_t>(e.prompt) && alone.next(seed) != e.tokens[i]) return false;
      alone.feed(e.tokens[i]);
    }
    return true;
  }

  void on_admit(schedule::Sequence& s) override {
    ++admissions;
    admitted[s.number] = {s.lease.cached, s.lease.miss, s.lease.first_difference_at};
    cached_tokens += s.lease.cached;
  }
  void on_token(schedule::Sequence&, const sample::Sampled&) override { ++tokens; }
  void on_end(std::unique_ptr<schedule::Sequence> s, schedule::FinishReason reason, int32_t,
              schedule::Failure failure) override {
    ended[s->number] = {reason, std::move(s->tokens), s->prompt_tokens, failure};
  }

  schedule::Scheduler& scheduler() { return scheduler_; }
  cache::Cache& cache() { return cache_; }
  VirtualClock& clock() { return clock_; }
  const schedule::StepPlan& plan() const { return plan_; }
  ShadowModel& model() { return model_; }
  int64_t longest_prefill() const { return longest_prefill_; }

  struct Admitted {
    int64_t cached = 0;
    cache::MissReason miss = cache::MissReason::none;
    int64_t first_difference_at = -1;
  };
  std::map<uint64_t, Admitted> admitted;
  std::map<uint64_t, Ended> ended;
  std::function<int64_t(const schedule::StepPlan&)>
      cost;  // what a step takes without copies, ns; unset: 1 ms
  bool copies_are_free = false;
  int64_t cached_tokens = 0;
  int64_t admissions = 0;
  int64_t tokens = 0;

 private:
  schedule::ScheduleLimits limits_;
  VirtualClock clock_;
  cache::Cache cache_;
  schedule::Scheduler scheduler_;
  ShadowModel model_;
  schedule::StepPlan plan_;
  std::vector<sample::Sampled> drawn_;
  uint64_t next_number_ = 1;
  int64_t longest_prefill_ = 0;
};

inline std::vector<int32_t> random_prompt(std::mt19937& random, int64_t length) {
  std::vector<int32_t> ids(static_cast<size_t>(length));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % kVocabulary);
  return ids;
}

}  // namespace godwit::simulator
