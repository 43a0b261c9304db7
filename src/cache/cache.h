// Cache: who holds which pages and state slots, and which prefixes can be reused (design §9). A plain data
// structure: it knows indices and ids, never tensors. A request holds a Lease from admission to its end; the
// lease is the only way to pages and slots, and giving it back is the only way they are freed.
//
// KDA state makes a prefix reusable only where a state snapshot exists. Pages and the snapshot at a boundary
// become visible to others in one commit, after the step that wrote them; only prompt rows are ever
// committed.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "cache/host_tier.h"
#include "cache/index_pool.h"
#include "cache/move.h"
#include "cache/prefix_tree.h"
#include "cache/prompt.h"

namespace godwit::cache {

constexpr int64_t kPageTokens = kBlock;

constexpr int64_t pages_for(int64_t tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

// Why a prompt (or the rest of it) was not in the cache.
enum class MissReason : uint8_t { none, disabled, too_short, no_snapshot, evicted, first_difference };
constexpr size_t kMissReasons = 6;
std::string_view miss_name(MissReason reason);  // as in docs/cache.md

struct Lease {
  int32_t slot = kNone;        // kNone: holds nothing
  std::vector<int32_t> pages;  // page i holds positions [64 i, 64 i + 64)
  int32_t in_table = 0;        // the first so many are as the plan's page table has them
  int32_t shared = 0;          // the first so many pages are blocks of the tree, read by others too
  int64_t cached = 0;          // leading tokens that need no prefill, a multiple of 64
  int32_t restore = kNone;     // snapshot to restore into `slot` before the first row
  int64_t branch = 0;          // deepest boundary that matched without a snapshot: prefill ends a slice there
  int64_t last_snapshot = 0;   // position of the newest snapshot on its path
  int32_t pending = kNone;     // snapshot being written by the planned step …
  int64_t pending_position = 0;  // … at this position
  int32_t host_slot = kNone;     // not kNone: the request was moved to the host, and `pages` are host pages
  MissReason miss = MissReason::disabled;
  int64_t first_difference_at = -1;

  bool held() const { return slot != kNone; }
  bool swapped() const { return host_slot != kNone; }
  int64_t tokens() const { return static_cast<int64_t>(pages.size()) * kPageTokens; }
};

struct CacheSizes {
  int32_t pages = 0;      // with the reserved page 0
  int32_t slots = 0;      // with the reserved slot 0
  int32_t snapshots = 0;  // 0: no prefix is ever reused
  HostSizes host;         // the second tier
};

class Cache {
 public:
  explicit Cache(const CacheSizes& sizes);

  // The largest boundary a hit may have: at least one prompt row is left to run (design §9).
  static int64_t last_boundary(int64_t prompt) { return (prompt - 1) / kPageTokens * kPageTokens; }

  // Takes a slot, what can be reused of `prompt`, and pages for `tokens` positions in all; or nothing at all.
  // `lease.pages` must have the capacity.
  bool acquire(const Prompt& prompt, int64_t tokens, Lease& lease);
  // More pages, up to `tokens` positions; all or nothing. Drops cached branches for them.
  bool grow(Lease& lease, int64_t tokens);
  void release(Lease& lease);
  // Moves a request that has run since it got its lease to the host, so that others have its pages and slot.
  // False when the host has no room: release() it then, and compute it again later.
  bool swap_out(Lease& lease);
  // Brings it back, with pages for `tokens` positions in all; or nothing at all. Nothing it holds is shared
  // any more.
  bool swap_in(Lease& lease, int64_t tokens);

  // The planned step restores lease.restore: the snapshot may be dropped again after it.
  void restored(Lease& lease);
  // A snapshot for the planned step to write at `position`, or kNone when none can be had.
  int32_t reserve_snapshot(Lease& lease, int64_t position);
  // The one commit point, after the step: the prompt's blocks up to `position` and the pending snapshot
  // become visible.
  void commit(Lease& lease, const Prompt& prompt, int64_t position);

  // Copies the planned step has to make for the cache; appended to `moves`.
  void take_moves(std::vector<Move>& moves);
  size_t most_moves() const { return moves_.capacity(); }  // that one step can have
  // The step has run: what it copied in may be dropped from the host again.
  void step_done() { host_.settle(); }
  // A copy from the host came back damaged: nothing of that tier is trusted any more.
  void distrust_host();

  // Forgets every prefix that no running request reads, in both tiers. Between steps.
  void flush();

  int32_t pages_used() const { return pages_.used() - tree_.unreferenced(); }  // held by leases
  int32_t pages_cached() const { return tree_.unreferenced(); }
  int32_t pages_capacity() const { return pages_.capacity(); }
  int32_t slots_used() const { return slots_.used(); }
  int32_t slots_capacity() const { return slots_.capacity(); }
  int32_t snapshots_used() const { return snapshots_.used(); }
  uint64_t evictions() const { return evictions_; }  // pages dropped from the tree
  int32_t host_pages_used() const { return host_.pages_used(); }
  int32_t host_snapshots_used() const { return host_.snapshots_used(); }
  int32_t host_slots_used() const { return host_.slots_used(); }
  uint64_t host_hits() const { return host_hits_; }  // admissions that came back from the host

 private:
  struct Found {
    int64_t matched = 0;  // blocks of the prompt in the device's tree
    int64_t usable = 0;   // of those, up to a snapshot
    HostTier::Hit host;   // set when the host reaches further than `usable`
  };
  Found look_up(const Prompt& prompt, Lease& lease);
  void explain(const Prompt& prompt, int64_t limit, const Found& found, Lease& lease) const;
  bool make_room(int64_t pages);
  bool drop_branch(bool keep_on_host);

  IndexPool pages_;
  IndexPool slots_;
  IndexPool snapshots_;
  PrefixTree tree_;
  HostTier host_;
  bool reuse_;
  uint64_t evictions_ = 0;
  uint64_t host_hits_ = 0;
  std::vector<Move> moves_;                                                     // since take_moves()
  std::vector<int32_t> freed_pages_, freed_snapshots_, host_path_, returning_;  // scratch
};

}  // namespace godwit::cache
