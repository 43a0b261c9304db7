// EvictionOrder: which of many things that may be dropped is worth least. A binary heap that knows where each
// of its items is, in storage fixed at construction: every change costs log n, and an eviction never looks at
// everything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace godwit::cache {

class EvictionOrder {
 public:
  // Of two items with one worth, the one that was used earlier comes first.
  struct Rank {
    int64_t worth = 0;
    int64_t used = 0;
    friend bool operator<(const Rank& a, const Rank& b) {
      return a.worth != b.worth ? a.worth < b.worth : a.used < b.used;
    }
  };

  explicit EvictionOrder(int32_t items)
      : ranks_(static_cast<size_t>(items)), places_(static_cast<size_t>(items), kAbsent) {
    heap_.reserve(static_cast<size_t>(items));
  }
  static constexpr int64_t bytes_per_item() { return sizeof(Rank) + 2 * sizeof(int32_t); }

  // Enters `item`, or moves it to where `rank` belongs.
  void set(int32_t item, Rank rank) {
    ranks_[index(item)] = rank;
    if (place(item) == kAbsent) {
      place(item) = static_cast<int32_t>(heap_.size());
      heap_.push_back(item);
    }
    rise(item);
    sink(item);
  }
  void remove(int32_t item) {
    const int32_t at = std::exchange(place(item), kAbsent);
    if (at == kAbsent) return;
    const int32_t last = heap_.back();
    heap_.pop_back();
    if (last == item) return;
    put(at, last);
    rise(last);
    sink(last);
  }
  // -1 when there is none.
  int32_t least() const { return heap_.empty() ? kAbsent : heap_.front(); }

 private:
  static constexpr int32_t kAbsent = -1;
  static size_t index(int32_t i) { return static_cast<size_t>(i); }
  int32_t& place(int32_t item) { return places_[index(item)]; }
  const Rank& rank_at(int32_t at) const { return ranks_[index(heap_[index(at)])]; }
  void put(int32_t at, int32_t item) {
    heap_[index(at)] = item;
    place(item) = at;
  }
  void rise(int32_t item) {
    for (int32_t at = place(item); at > 0; at = place(item)) {
      const int32_t above = (at - 1) / 2;
      if (!(ranks_[index(item)] < rank_at(above))) return;
      put(at, heap_[index(above)]);
      put(above, item);
    }
  }
  void sink(int32_t item) {
    const auto size = static_cast<int32_t>(heap_.size());
    while (true) {
      const int32_t at = place(item);
      int32_t below = 2 * at + 1;
      if (below >= size) return;
      if (below + 1 < size && rank_at(below + 1) < rank_at(below)) ++below;
      if (!(rank_at(below) < ranks_[index(item)])) return;
      put(at, heap_[index(below)]);
      put(below, item);
    }
  }

  std::vector<Rank> ranks_;      // [items]
  std::vector<int32_t> places_;  // [items] where in the heap; kAbsent
  std::vector<int32_t> heap_;    // items, the least first
};

}  // namespace godwit::cache
