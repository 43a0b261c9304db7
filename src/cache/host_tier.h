// HostTier: prefixes that left the device, kept in host memory (design §9, second tier). It has a prefix tree
// of its own over host pages and host snapshots: whole paths from the first block to a snapshot, so that a
// hit needs nothing but the host.
#pragma once

#include <cstddef>
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

  // Makes place for the path to block `last` (which has a snapshot) of the device's tree, as far as it is not
  // here yet, and appends the copies that fill it: pages from the first on, then the snapshot. Until each is
  // written(), its place is not dropped. Drops what is worth less if need be; keeps nothing when it does not
  // fit.
  void keep(const PrefixTree& device, int32_t last, std::vector<Move>& copies);
  // A copy that keep() asked for is planned, or will never be made: then flush() must follow.
  void written(const Move& copy);

  struct Hit {
    int64_t blocks = 0;        // up to the deepest snapshot
    int32_t snapshot = kNone;  // host index
  };
  // The longest usable prefix of `prompt` within `limit` blocks. Its pages are appended to `path`.
  Hit find(const Prompt& prompt, int64_t limit, std::vector<int32_t>& path) const;
  // Place for a running request of so many pages that makes room: its host slot, and its host pages appended
  // to `pages`. kNone when there is none.
  int32_t take(size_t count, std::vector<int32_t>& pages);
  void give(std::span<const int32_t> pages, int32_t slot);

  // The path to a hit, and its snapshot, are not dropped between these two: they are being copied in.
  void hold(int32_t last_page, int32_t snapshot);
  void let_go(int32_t last_page, int32_t snapshot);

  void flush();  // forgets every prefix that is not held

  int32_t pages_used() const { return pages_.used(); }
  int32_t pages_capacity() const { return pages_.capacity(); }
  int32_t snapshots_used() const { return snapshots_.used(); }
  int32_t slots_used() const { return slots_.used(); }
  // Records there are: no more copies to the host can wait at once.
  size_t records() const {
    return static_cast<size_t>(int64_t{pages_.capacity()} + snapshots_.capacity() + slots_.capacity());
  }

 private:
  bool make_room(int64_t pages, int32_t snapshots);
  bool drop();

  IndexPool pages_;
  IndexPool snapshots_;
  IndexPool slots_;
  PrefixTree tree_;
  std::vector<int32_t> path_, freed_pages_, freed_snapshots_;  // scratch
};

}  // namespace godwit::cache
