// IndexPool: hands out the indices [reserved, size) of pages, slots or snapshots, lowest first at start, last
// returned first later. Storage is fixed at construction.
#pragma once

#include <cstdint>
#include <vector>

#include "base/assert.h"

namespace godwit::cache {

class IndexPool {
 public:
  // Indices below `reserved` are never handed out: padded rows point at them.
  IndexPool(int32_t size, int32_t reserved)
      : size_(size), reserved_(reserved), taken_(static_cast<size_t>(size), false) {
    free_.reserve(static_cast<size_t>(size));
    for (int32_t i = size - 1; i >= reserved; --i) free_.push_back(i);
  }

  int32_t available() const { return static_cast<int32_t>(free_.size()); }
  int32_t used() const { return size_ - reserved_ - available(); }
  int32_t capacity() const { return size_ - reserved_; }

  // Needs available() > 0.
  int32_t take() {
    GODWIT_ASSERT(!free_.empty());
    const int32_t i = free_.back();
    free_.pop_back();
    taken_[static_cast<size_t>(i)] = true;
    return i;
  }

  void give(int32_t i) {
    GODWIT_ASSERT(i >= reserved_ && i < size_ && taken_[static_cast<size_t>(i)]);  // no double free
    taken_[static_cast<size_t>(i)] = false;
    free_.push_back(i);
  }

 private:
  int32_t size_;
  int32_t reserved_;
  std::vector<int32_t> free_;
  std::vector<bool> taken_;
};

}  // namespace godwit::cache
