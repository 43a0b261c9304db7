#include "engine/step_log.h"

#include <algorithm>

namespace godwit::engine {

StepLog::StepLog(int64_t max_sequences) : records_(kSteps) {
  const auto sequences = static_cast<size_t>(max_sequences);
  for (StepRecord& r : records_) {
    r.sequences.reserve(sequences);
    r.moves.reserve(kKeptMoves);
    r.restores.reserve(sequences);
    r.saves.reserve(sequences);
  }
}

int64_t StepLog::bytes(int64_t max_sequences) {
  const auto size = [](auto bytes) { return static_cast<int64_t>(bytes); };
  return size(kSteps) *
         (size(sizeof(StepRecord)) + size(kKeptMoves * sizeof(cache::Move)) +
          max_sequences * size(sizeof(schedule::PlanSequence) + 2 * sizeof(schedule::SnapshotCommand)));
}

void StepLog::begin(const schedule::StepPlan& plan, int64_t now_ns) {
  StepRecord& r = records_[begun_++ % kSteps];
  r.step = plan.step;
  r.planned_ns = now_ns;
  r.took_ns = 0;
  r.decode_sequences = plan.decode_sequences;
  r.sequences.assign(plan.sequences.begin(), plan.sequences.end());
  r.all_moves = static_cast<int64_t>(plan.moves.size());
  const size_t kept = std::min(plan.moves.size(), kKeptMoves);
  r.moves.assign(plan.moves.begin(), plan.moves.begin() + static_cast<std::ptrdiff_t>(kept));
  r.restores.assign(plan.restores.begin(), plan.restores.end());
  r.saves.assign(plan.saves.begin(), plan.saves.end());
}

void StepLog::end(int64_t now_ns) {
  StepRecord& r = records_[(begun_ - 1) % kSteps];
  r.took_ns = now_ns - r.planned_ns;
}

}  // namespace godwit::engine
