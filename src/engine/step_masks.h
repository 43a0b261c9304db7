// StepMasks: makes the masks of a step on a thread of its own, while the step's rows are computed. A grammar
// allocates when it meets a state for the first time, and the first visit of a large one takes milliseconds:
// neither belongs on the engine thread.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/constraint.h"
#include "schedule/mask_source.h"

namespace godwit::engine {

class StepMasks final : public schedule::MaskSource {
 public:
  // rows: masks a step may need. vocabulary: ids a mask covers. All storage is allocated here.
  StepMasks(int64_t rows, int64_t vocabulary);
  ~StepMasks() override;

  // Engine thread, per step: clear(), add() for each masked row, begin().
  void clear() { items_.clear(); }
  // The row's mask index. `output` and `constraint` stay as they are until await() has returned.
  int32_t add(Constraint& constraint, std::span<const int32_t> output, bool may_end);
  void begin();

  // After await(): the mask of a row.
  std::span<const uint32_t> mask(int64_t row) const {
    return std::span(masks_).subspan(static_cast<size_t>(row) * words_, words_);
  }

  int64_t count() const override { return static_cast<int64_t>(items_.size()); }
  // From any thread: the watchdog, too, must not bury requests whose masks are being made.
  const uint32_t* await() override;

 private:
  struct Item {
    Constraint* constraint;
    std::span<const int32_t> output;
    bool may_end;
  };
  void run();

  size_t words_;
  std::vector<Item> items_;
  std::vector<uint32_t> masks_;  // [rows][words]
  std::mutex mutex_;             // what follows; held for moments, never while masks are made
  std::condition_variable changed_;
  bool pending_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace godwit::engine
