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

#include "cache/copy_queue.h"
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
  // Its copies on the host: all of a request that was moved there, or the prefix that is being copied in.
  std::vector<int32_t> host_pages;
  int32_t host_slot = kNone;      // of a request that was moved
  int32_t host_snapshot = kNone;  // of a prefix
  int32_t incoming = kNone;       // device snapshot that `host_snapshot` is copied to; nobody else has it yet
  MissReason miss = MissReason::disabled;
  int64_t first_difference_at = -1;

  bool held() const { return slot != kNone; }
  bool swapped() const { return !held() && host_slot != kNone; }
  // Being copied in from the host: has its slot and pages, and may not run before arrived().
  bool loading() const { return held() && !host_pages.empty(); }
  int64_t tokens() const { return static_cast<int64_t>(pages.size()) * kPageTokens; }
  // All the storage that so many tokens will need, so that the engine thread allocates none.
  void reserve(int64_t tokens) {
    pages.reserve(static_cast<size_t>(pages_for(tokens)));
    host_pages.reserve(static_cast<size_t>(pages_for(tokens)));
  }
};

struct CacheSizes {
  int32_t pages = 0;      // with the reserved page 0
  int32_t slots = 0;      // with the reserved slot 0
  int32_t snapshots = 0;  // 0: no prefix is ever reused
  HostSizes host;         // the second tier
  RecordBytes record_bytes = {1, 1, 1};
};

class Cache {
 public:
  explicit Cache(const CacheSizes& sizes);

  // The largest boundary a hit may have: at least one prompt row is left to run (design §9).
  static int64_t last_boundary(int64_t prompt) { return (prompt - 1) / kPageTokens * kPageTokens; }

  // Takes a slot, what can be reused of `prompt`, and pages for `tokens` positions in all; or nothing at all:
  // there is no room, or what leaves for the host has to be copied first (leaving()). The lease must have the
  // capacity. What comes from the host is then loading().
  bool acquire(const Prompt& prompt, int64_t tokens, Lease& lease);
  // More pages, up to `tokens` positions; all or nothing. Drops cached branches for them.
  bool grow(Lease& lease, int64_t tokens);
  void release(Lease& lease);
  // Moves a request that has run since it got its lease to the host, so that others have its pages and slot.
  // False when the host has no room: release() it then, and compute it again later.
  bool swap_out(Lease& lease);
  // Brings it back, with pages for `tokens` positions in all; or nothing at all. Nothing it holds is shared
  // any more. It is loading() then.
  bool swap_in(Lease& lease, int64_t tokens);
  // Sends a request that swap_in() brings back to the host again, where all of it still is.
  void retreat(Lease& lease);
  // All copies for a loading lease are part of the planned step or of earlier ones: its rows may follow them.
  bool arrived(const Lease& lease) const { return copies_.arriving(lease.slot) == 0; }
  // After that step: a request has left the host, and a prefix is the device tree's again, snapshot included.
  // `prompt` is that of acquire().
  void settle(Lease& lease, const Prompt& prompt);

  // The planned step restores lease.restore: the snapshot may be dropped again after it.
  void restored(Lease& lease);
  // A snapshot for the planned step to write at `position`, or kNone when none can be had.
  int32_t reserve_snapshot(Lease& lease, int64_t position);
  // The one commit point, after the step: the prompt's blocks up to `position` and the pending snapshot
  // become visible.
  void commit(Lease& lease, const Prompt& prompt, int64_t position);

  // Copies between the tiers, spread over steps. A step begins with the bytes it may copy, everything that
  // may need room follows; then plan_copies() before rows are planned, and at the end take_moves().
  void begin_copies(int64_t bytes) { copies_.begin_step(bytes); }
  void plan_copies();
  void take_moves(std::vector<Move>& moves) { copies_.take_moves(moves); }  // appends at most kMostMoves
  int64_t planned_copy_bytes() const { return copies_.planned_bytes(); }    // of the step being planned
  bool copying() const { return !copies_.idle(); }
  // Something is on its way to the host: there will be more room without sending anybody away.
  bool leaving() const { return copies_.leaving(); }
  uint64_t last_leaving() const { return copies_.last_out(); }  // number of the newest such copy …
  bool has_left(uint64_t number) const { return copies_.oldest_out() > number; }
  // A copy from the host came back damaged: nothing of that tier is trusted any more. No prefix may be
  // loading.
  void distrust_host();

  // Forgets every prefix that no request reads, in both tiers. Between steps.
  void flush();

  // Held by leases, and by copies of what leases shared.
  int32_t pages_used() const { return pages_.used() - tree_.unreferenced() - leaving_pages_; }
  int32_t pages_cached() const { return tree_.unreferenced(); }
  int32_t pages_capacity() const { return pages_.capacity(); }
  int32_t slots_used() const { return slots_.used() - leaving_slots_; }
  int32_t slots_capacity() const { return slots_.capacity(); }
  int32_t snapshots_used() const { return snapshots_.used(); }  // those on their way to the host included
  uint64_t evictions() const { return evictions_; }             // pages dropped from the tree
  int32_t host_pages_used() const { return host_.pages_used(); }
  int32_t host_snapshots_used() const { return host_.snapshots_used(); }
  int32_t host_slots_used() const { return host_.slots_used(); }
  uint64_t host_hits() const { return host_hits_; }  // admissions that came back from the host

 private:
  static constexpr int32_t kSpareSnapshots = 4;  // that are kept free with a host tier, of 32 or more

  struct Found {
    int64_t matched = 0;  // blocks of the prompt in the device's tree
    int64_t usable = 0;   // of those, up to a snapshot
    HostTier::Hit host;   // set when the host reaches further than `usable`
  };
  Found look_up(const Prompt& prompt, Lease& lease);
  void explain(const Prompt& prompt, int64_t limit, const Found& found, Lease& lease) const;
  void share(Lease& lease, const Prompt& prompt, int32_t blocks);
  bool make_room(int64_t pages, int32_t slots);
  bool drop_branch(bool keep_on_host);
  int32_t take_snapshot();
  enum class When { at_once, in_turn };
  bool drop_snapshot(When when);
  void spare_snapshots();
  void plan_out();
  void give_back(const CopyQueue::Out& out);
  void forget_host(Lease& lease);
  void stop_loading(Lease& lease);
  void drop_outs_of_prefixes();

  IndexPool pages_;
  IndexPool slots_;
  IndexPool snapshots_;
  PrefixTree tree_;
  HostTier host_;
  CopyQueue copies_;
  bool reuse_;
  uint64_t evictions_ = 0;
  uint64_t host_hits_ = 0;
  std::vector<bool> leaves_;   // [pages] its copy to the host waits, and it is free after that
  int32_t leaving_pages_ = 0;  // of those
  int32_t leaving_slots_ = 0;
  int32_t leaving_snapshots_ = 0;
  std::vector<Move> kept_;                              // scratch
  std::vector<int32_t> freed_pages_, freed_snapshots_;  // scratch
};

}  // namespace godwit::cache
