// StepLog: what the last steps did, for the dump of an engine that dies. Storage is fixed at construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedule/step_plan.h"

namespace godwit::engine {

// A StepPlan without what its sequences' ids already say.
struct StepRecord {
  uint64_t step = 0;
  int64_t planned_ns = 0;        // SteadyClock
  int64_t took_ns = 0;           // 0: it has not ended
  int32_t decode_sequences = 0;  // the first so many are of the decode family
  std::vector<schedule::PlanSequence> sequences;
  std::vector<cache::Move> moves;  // the first kKeptMoves
  int64_t all_moves = 0;           // that the step had
  std::vector<schedule::SnapshotCommand> restores, saves;
};

class StepLog {
 public:
  static constexpr size_t kSteps = 64;
  static constexpr size_t kKeptMoves = 256;  // of a step: a request that comes back may have thousands

  explicit StepLog(int64_t max_sequences);
  static int64_t bytes(int64_t max_sequences);

  // Of the planned step; the oldest record gives its place.
  void begin(const schedule::StepPlan& plan, int64_t now_ns);
  void end(int64_t now_ns);  // of the step begun last
  // Oldest first.
  template <class F>
  void for_each(F&& f) const {
    for (size_t i = begun_ < kSteps ? 0 : begun_ - kSteps; i < begun_; ++i) f(records_[i % kSteps]);
  }

 private:
  std::vector<StepRecord> records_;
  size_t begun_ = 0;
};

}  // namespace godwit::engine
