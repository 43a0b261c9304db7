// CopyQueue: the copies between the tiers that are yet to be made, and which of them the planned step makes.
// A step that made all of them at once would hold up every stream for as long as a gigabyte takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/assert.h"
#include "cache/move.h"

namespace godwit::cache {

// First in, first out, in storage fixed at construction.
template <class T>
class Ring {
 public:
  explicit Ring(size_t capacity) : items_(capacity) {}

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T& front() const { return items_[first_]; }
  void push(const T& item) {
    GODWIT_ASSERT(size_ < items_.size());
    at(size_++) = item;
  }
  T pop() {
    GODWIT_ASSERT(size_ > 0);
    const T item = items_[first_];
    first_ = (first_ + 1) % items_.size();
    --size_;
    return item;
  }
  // Takes out the items that `take` says true of; the others keep their order.
  template <class F>
  void take_if(F&& take) {
    size_t kept = 0;
    for (size_t i = 0; i < size_; ++i)
      if (!take(at(i))) at(kept++) = at(i);
    size_ = kept;
  }

 private:
  T& at(size_t i) { return items_[(first_ + i) % items_.size()]; }

  std::vector<T> items_;
  size_t first_ = 0, size_ = 0;
};

class CopyQueue {
 public:
  // Who has the source of a copy to the host until it is planned, and gets it back then.
  enum class Source : uint8_t {
    page,         // nobody else: free after it
    shared_page,  // the device's tree, with a reference for the copy
    snapshot,     // nobody else
    slot,         // nobody else
  };
  struct Out {
    Move move;
    Source source = Source::page;
    int32_t host_slot = -1;  // of the request that moves; -1: a prefix
    uint64_t number = 0;     // in the order of push_out(), from 1
  };

  // `most_out`, `most_in`: copies that can wait at once. `slots`: state slots of the device.
  CopyQueue(const RecordBytes& bytes, size_t most_out, size_t most_in, size_t slots);
  static int64_t bytes(int64_t most_out, int64_t most_in);
  // One step makes no more copies than this, however small they are.
  static constexpr size_t kMostMoves = 4096;

  // The next step copies at most so many bytes, or two of the largest records if those are more: one each way
  // must be possible. Half is kept for copies to the device that could be made: what leaves goes first and
  // must not starve them.
  void begin_step(int64_t bytes);
  int64_t least_bytes() const { return 2 * *std::max_element(bytes_.begin(), bytes_.end()); }

  void push_out(const Move& move, Source source, int32_t host_slot);
  // Waits for everything pushed out before it: its source may still have to be written.
  void push_in(const Move& move);

  bool can_plan_out() const { return !outs_.empty() && fits_out(outs_.front().move); }
  Out plan_out();
  // A copy to the host that cannot wait, before those that do.
  bool can_plan_now(Move::What what) const { return fits_out({.what = what}); }
  void plan_now(const Move& move) { plan(move); }
  void plan_ins();

  // Drops the copies to the host of which `drop` says true (it gets an Out).
  template <class F>
  void drop_outs(F&& drop) {
    outs_.take_if(drop);
  }
  void drop_ins(int32_t slot);

  // Appends what the step does.
  void take_moves(std::vector<Move>& moves);
  int64_t planned_bytes() const { return planned_; }

  bool idle() const { return outs_.empty() && ins_.empty(); }
  bool leaving() const { return !outs_.empty(); }
  // Copies for the lease of this slot that no step has planned yet.
  int32_t arriving(int32_t slot) const { return arriving_[static_cast<size_t>(slot)]; }
  // Numbers of the copy pushed out last and of the oldest that waits; the latter is larger when none does.
  uint64_t last_out() const { return pushed_; }
  uint64_t oldest_out() const { return outs_.empty() ? pushed_ + 1 : outs_.front().number; }

 private:
  struct In {
    Move move;
    uint64_t after = 0;  // the copy to the host that must have been planned
  };
  int64_t cost(const Move& move) const { return bytes_[static_cast<size_t>(move.what)]; }
  bool fits(int64_t bytes, size_t moves) const { return bytes <= left_ && planned_moves_.size() < moves; }
  bool fits_out(const Move& move) const {
    return fits(cost(move) + for_ins_, for_ins_ > 0 ? kMostMoves / 2 : kMostMoves);
  }
  bool can_arrive() const { return !ins_.empty() && ins_.front().after < oldest_out(); }
  void plan(const Move& move);

  RecordBytes bytes_;
  Ring<Out> outs_;
  Ring<In> ins_;
  std::vector<int32_t> arriving_;    // [slots]
  std::vector<Move> planned_moves_;  // of this step
  uint64_t pushed_ = 0;
  int64_t left_ = 0, for_ins_ = 0, planned_ = 0;
};

}  // namespace godwit::cache
