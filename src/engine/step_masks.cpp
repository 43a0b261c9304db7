#include "engine/step_masks.h"

#include "base/assert.h"

namespace godwit::engine {

StepMasks::StepMasks(int64_t rows, int64_t vocabulary)
    : words_(static_cast<size_t>((vocabulary + 31) / 32)), masks_(static_cast<size_t>(rows) * words_) {
  items_.reserve(static_cast<size_t>(rows));
  thread_ = std::thread([this] { run(); });
}

StepMasks::~StepMasks() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

int32_t StepMasks::add(Constraint& constraint, std::span<const int32_t> output, bool may_end) {
  GODWIT_ASSERT(items_.size() < items_.capacity());
  items_.push_back({&constraint, output, may_end});
  return static_cast<int32_t>(items_.size()) - 1;
}

void StepMasks::begin() {
  if (items_.empty()) return;
  {
    std::lock_guard lock(mutex_);
    pending_ = true;
  }
  changed_.notify_all();
}

const uint32_t* StepMasks::await() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !pending_; });
  return masks_.data();
}

void StepMasks::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return pending_ || stopping_; });
    if (!pending_) return;
    lock.unlock();
    for (size_t i = 0; i < items_.size(); ++i)
      items_[i].constraint->fill(items_[i].output, items_[i].may_end,
                                 std::span(masks_).subspan(i * words_, words_));
    lock.lock();
    pending_ = false;
    changed_.notify_all();
  }
}

}  // namespace godwit::engine
