// HostTier: prefixes that left the device, kept in host memory (design §9, second tier). It has a prefix tree
// of its own over host pages and host snapshots: whole paths from the first block to a snapshot, so that a
// hit needs nothing but the host.
#pragma once

#include <span>
#include <vector>

#include "cache/index_pool.h"
#include "cache/move.h"
#include "cache/prefix_tree.h"

namespace godwit::cache {

struct HostSizes {
  int32_t pages = 0;  // 0: no host tier
  int32_t snapshots = 0;
  int32_t slots = 0;  // whole slots of requests that had to make room
};

class HostTier {
 public:
  explicit HostTier(const HostSizes& sizes);

  bool enabled() const { return snapshots_.capacity() > 0 && pages_.capacity() > 0; }

  // Copies the path to block `last` (which has a snapshot) of the device's tree, as far as it is not here
  // yet. Drops what is worth less than it if need be; keeps nothing when it does not fit.
  void keep(const PrefixTree& device, int32_t last, std::vector<Move>& moves);

  struct Hit {
    int64_t blocks = 0;        // up to the deepest snapshot
    int32_t snapshot = kNone;  // host index
  };
  // The longest usable prefix of `prompt` within `limit` blocks. Its pages are appended to `path`.
  Hit find(const Prompt& prompt, int64_t limit, std::vector<int32_t>& path) const;
  // A running request makes room: all its pages and its slot go to the host. `pages` become host pages. kNone
  // when the host has no room for it; else its host slot.
  int32_t swap_out(std::vector<int32_t>& pages, int32_t slot, std::vector<Move>& moves);
  // It comes back into `to_slot` and the first of `to`; what it held here is free after settle().
  void swap_in(std::span<const int32_t> pages, int32_t slot, std::span<const int32_t> to, int32_t to_slot,
               std::vector<Move>& moves);
  void forget(std::span<const int32_t> pages, int32_t slot);  // it ended on the host

  // Until settle(), the pages and the snapshot of a hit that the planned step copies in are not dropped.
  void hold(int32_t last_page, int32_t snapshot);
  void settle();

  void flush();  // after settle()

  int32_t pages_used() const { return pages_.used(); }
  int32_t pages_capacity() const { return pages_.capacity(); }
  int32_t snapshots_used() const { return snapshots_.used(); }
  int32_t slots_used() const { return slots_.used(); }

 private:
  bool make_room(int64_t pages, int32_t snapshots);
  bool drop();

  IndexPool pages_;
  IndexPool snapshots_;
  IndexPool slots_;
  PrefixTree tree_;
  struct Held {
    int32_t page, snapshot;
  };
  std::vector<Held> held_;
  std::vector<int32_t> leaving_pages_, leaving_slots_;         // copied back by the planned step
  std::vector<int32_t> path_, freed_pages_, freed_snapshots_;  // scratch
};

}  // namespace godwit::cache
