#include "cache/cache.h"

#include <algorithm>
#include <array>
#include <utility>

namespace godwit::cache {

std::string_view miss_name(MissReason reason) {
  static constexpr std::array<std::string_view, kMissReasons> kNames = {
      "none", "disabled", "too_short", "no_snapshot", "evicted", "first_difference"};
  return kNames[static_cast<size_t>(reason)];
}

Cache::Cache(const CacheSizes& sizes)
    : pages_(sizes.pages, 1),
      slots_(sizes.slots, 1),
      snapshots_(sizes.snapshots, 0),
      tree_(sizes.pages, sizes.snapshots),
      host_(sizes.host),
      copies_(sizes.record_bytes, host_.records(), static_cast<size_t>(sizes.pages + sizes.slots),
              static_cast<size_t>(sizes.slots)),
      reuse_(sizes.snapshots > 0),
      leaves_(static_cast<size_t>(sizes.pages), false) {
  freed_pages_.reserve(static_cast<size_t>(sizes.pages));
  freed_snapshots_.reserve(static_cast<size_t>(sizes.snapshots));
  kept_.reserve(static_cast<size_t>(sizes.pages) + 1);
}

// Appends the device's blocks of the prompt to lease.pages, and, if the host reaches further, those of the
// host to lease.host_pages.
Cache::Found Cache::look_up(const Prompt& prompt, Lease& lease) {
  Found found;
  const int64_t limit = last_boundary(static_cast<int64_t>(prompt.ids.size())) / kPageTokens;
  if (!reuse_ || limit == 0) return found;
  int32_t at = kNone;
  for (; found.matched < limit; ++found.matched) {
    const int32_t next = tree_.find(at, prompt.key(found.matched), prompt.block(found.matched));
    if (next == kNone) break;
    at = next;
    lease.pages.push_back(at);
    if (tree_.node(at).snapshot != kNone) found.usable = found.matched + 1;
  }
  if (found.usable == limit || !host_.enabled()) return found;
  const HostTier::Hit hit = host_.find(prompt, limit, lease.host_pages);
  if (hit.blocks > found.usable) {
    found.host = hit;
  } else {
    lease.host_pages.clear();
  }
  return found;
}

void Cache::explain(const Prompt& prompt, int64_t limit, const Found& found, Lease& lease) const {
  lease.first_difference_at = -1;
  const int32_t last = found.matched > 0 ? lease.pages[static_cast<size_t>(found.matched) - 1] : kNone;
  const int64_t usable = std::max(found.usable, found.host.blocks);
  if (!reuse_) {
    lease.miss = MissReason::disabled;
  } else if (limit == 0) {
    lease.miss = MissReason::too_short;
  } else if (usable == limit) {
    lease.miss = MissReason::none;
  } else if (found.matched > usable) {
    lease.miss = MissReason::no_snapshot;
  } else if (tree_.dropped(prompt.key(found.matched))) {
    lease.miss = MissReason::evicted;
  } else {
    lease.miss = MissReason::first_difference;
    lease.first_difference_at = found.matched * kPageTokens + tree_.common(last, prompt.block(found.matched));
  }
}

bool Cache::acquire(const Prompt& prompt, int64_t tokens, Lease& lease) {
  GODWIT_ASSERT(!lease.held() && lease.pages.empty() && lease.host_pages.empty());
  if (!make_room(0, 1)) return false;
  const int64_t limit = last_boundary(static_cast<int64_t>(prompt.ids.size())) / kPageTokens;
  Found found = look_up(prompt, lease);
  if (found.host.blocks > 0) {
    host_.hold(lease.host_pages.back(), found.host.snapshot);
    lease.incoming = take_snapshot();
    if (lease.incoming == kNone) {  // all are in use: the device's own hit has to do
      host_.let_go(lease.host_pages.back(), found.host.snapshot);
      lease.host_pages.clear();
      found.host = {};
    }
  }
  explain(prompt, limit, found, lease);
  const bool from_host = found.host.blocks > 0;
  const int64_t reused = from_host ? found.host.blocks : found.usable;
  // Blocks the device has are shared even where the state comes from the host.
  const int64_t shared = std::min(found.matched, reused);
  lease.pages.resize(static_cast<size_t>(shared));
  lease.shared = static_cast<int32_t>(shared);
  lease.cached = lease.last_snapshot = reused * kPageTokens;
  lease.branch = found.matched > reused ? found.matched * kPageTokens : 0;
  // What is reused is referenced before room is made, or making room could drop it.
  for (const int32_t page : lease.pages) tree_.reference(page);
  if (from_host) {
    lease.host_snapshot = found.host.snapshot;
    lease.restore = lease.incoming;
  } else if (reused > 0) {
    lease.restore = tree_.node(lease.pages.back()).snapshot;
    tree_.pin(lease.restore);
  }
  lease.slot = slots_.take();
  if (!grow(lease, tokens)) {
    release(lease);
    return false;
  }
  if (from_host) {
    ++host_hits_;
    for (int64_t i = shared; i < reused; ++i)
      copies_.push_in({Move::What::page, Move::Way::in, lease.host_pages[static_cast<size_t>(i)],
                       lease.pages[static_cast<size_t>(i)], lease.slot});
    copies_.push_in({Move::What::snapshot, Move::Way::in, found.host.snapshot, lease.incoming, lease.slot});
  }
  return true;
}

bool Cache::grow(Lease& lease, int64_t tokens) {
  const int64_t missing = pages_for(tokens) - static_cast<int64_t>(lease.pages.size());
  if (missing <= 0) return true;
  if (!make_room(missing, 0)) return false;
  for (int64_t i = 0; i < missing; ++i) lease.pages.push_back(pages_.take());
  return true;
}

// As many free pages and slots, or false: not without waiting for copies, or not at all.
bool Cache::make_room(int64_t pages, int32_t slots) {
  const int64_t reachable = pages_.available() + leaving_pages_ + tree_.unreferenced();
  if (pages > reachable || slots > slots_.available() + leaving_slots_) return false;
  while (pages > pages_.available() || slots > slots_.available()) {
    // One branch after the other: what a leaving one shares with others cannot be dropped before it has left,
    // and the next weakest may be just that.
    if (copies_.leaving() ? !copies_.can_plan_out() : !drop_branch(true)) return false;
    if (copies_.can_plan_out()) plan_out();
  }
  return true;
}

bool Cache::drop_branch(bool keep_on_host) {
  const int32_t leaf = tree_.weakest_leaf();
  if (leaf == kNone) return false;
  kept_.clear();
  if (keep_on_host && tree_.node(leaf).snapshot != kNone) host_.keep(tree_, leaf, kept_);
  freed_pages_.clear();
  freed_snapshots_.clear();
  tree_.remove_branch(leaf, freed_pages_, freed_snapshots_);
  bool snapshot_leaves = false;
  for (const Move& m : kept_) {
    if (m.what == Move::What::snapshot) {
      snapshot_leaves = true;
      ++leaving_snapshots_;
      copies_.push_out(m, CopyQueue::Source::snapshot, kNone);
    } else if (tree_.node(m.from).present) {  // other prefixes go on from it
      tree_.hold(m.from);
      copies_.push_out(m, CopyQueue::Source::shared_page, kNone);
    } else {
      leaves_[static_cast<size_t>(m.from)] = true;
      ++leaving_pages_;
      copies_.push_out(m, CopyQueue::Source::page, kNone);
    }
  }
  for (const int32_t page : freed_pages_)
    if (!leaves_[static_cast<size_t>(page)]) pages_.give(page);
  if (!snapshot_leaves)
    for (const int32_t snapshot : freed_snapshots_) snapshots_.give(snapshot);
  evictions_ += freed_pages_.size();
  return true;
}

void Cache::release(Lease& lease) {
  if (lease.swapped()) forget_host(lease);
  if (!lease.held()) return;
  if (lease.loading()) stop_loading(lease);
  restored(lease);
  if (lease.incoming != kNone) snapshots_.give(lease.incoming);
  if (lease.pending != kNone) snapshots_.give(lease.pending);
  lease.incoming = lease.pending = kNone;
  for (size_t i = 0; i < lease.pages.size(); ++i) {
    if (i < static_cast<size_t>(lease.shared)) {
      tree_.release(lease.pages[i]);
    } else {
      pages_.give(lease.pages[i]);
    }
  }
  lease.pages.clear();
  lease.shared = lease.in_table = 0;
  slots_.give(lease.slot);
  lease.slot = kNone;
}

void Cache::restored(Lease& lease) {
  if (lease.restore == kNone) return;
  if (lease.restore != lease.incoming) tree_.unpin(lease.restore);
  lease.restore = kNone;
}

// A snapshot that nobody has, the weakest of the tree if need be; kNone when all are in use. It is wanted in
// this step: the one it takes the place of goes to the host if it can do so at once.
int32_t Cache::take_snapshot() {
  if (snapshots_.available() == 0 && !drop_snapshot(When::at_once)) return kNone;
  return snapshots_.take();
}

// Takes the weakest snapshot from the tree, by way of the host if it is not there and has room. Its pages
// stay.
bool Cache::drop_snapshot(When when) {
  const int32_t dropped = tree_.weakest_snapshot();
  if (dropped == kNone) return false;
  const bool at_once = when == When::at_once;
  kept_.clear();
  if (!at_once || copies_.can_plan_now(Move::What::snapshot))
    host_.keep(tree_, tree_.holder_of(dropped), kept_);
  tree_.detach(dropped);
  bool leaves = false;
  for (const Move& m : kept_) {
    if (m.what == Move::What::page) {
      tree_.hold(m.from);
      copies_.push_out(m, CopyQueue::Source::shared_page, kNone);
    } else if (at_once) {
      copies_.plan_now(m);
      host_.written(m);
    } else {
      leaves = true;
      ++leaving_snapshots_;
      copies_.push_out(m, CopyQueue::Source::snapshot, kNone);
    }
  }
  if (!leaves) snapshots_.give(dropped);
  return true;
}

// With a host tier, some snapshots are free before they are wanted: what they held can then leave in its
// turn instead of at once or not at all.
void Cache::spare_snapshots() {
  if (!host_.enabled()) return;
  const int32_t spare = std::min(kSpareSnapshots, snapshots_.capacity() / 8);
  while (snapshots_.available() + leaving_snapshots_ < spare && drop_snapshot(When::in_turn)) {
  }
}

int32_t Cache::reserve_snapshot(Lease& lease, int64_t position) {
  GODWIT_ASSERT(lease.pending == kNone && position % kPageTokens == 0);
  if (!reuse_) return kNone;
  lease.pending = take_snapshot();
  lease.pending_position = position;
  return lease.pending;
}

// Makes the prompt's first `blocks` blocks, which the lease's pages hold, blocks of the tree.
void Cache::share(Lease& lease, const Prompt& prompt, int32_t blocks) {
  for (int32_t i = lease.shared; i < blocks; ++i) {
    const int32_t parent = i == 0 ? kNone : lease.pages[static_cast<size_t>(i) - 1];
    int32_t& page = lease.pages[static_cast<size_t>(i)];
    const int32_t known = tree_.find(parent, prompt.key(i), prompt.block(i));
    if (known != kNone) {
      // Another request computed the same block meanwhile: the same bits, so one of the two pages is enough.
      pages_.give(page);
      page = known;
      lease.in_table = std::min(lease.in_table, i);
    } else {
      tree_.insert(page, parent, prompt.key(i), prompt.block(i));
    }
    tree_.reference(page);
    lease.shared = i + 1;
  }
}

void Cache::commit(Lease& lease, const Prompt& prompt, int64_t position) {
  if (!reuse_) return;
  const int32_t full = static_cast<int32_t>(position / kPageTokens);
  share(lease, prompt, full);
  if (lease.pending == kNone) return;
  GODWIT_ASSERT(lease.pending_position == position && position == full * kPageTokens);
  const int32_t page = lease.pages[static_cast<size_t>(full) - 1];
  if (tree_.node(page).snapshot == kNone) {
    tree_.attach(page, lease.pending, lease.last_snapshot);
  } else {
    snapshots_.give(lease.pending);
  }
  lease.pending = kNone;
  lease.last_snapshot = position;
}

void Cache::flush() {
  drop_outs_of_prefixes();
  while (drop_branch(false)) {
  }
  host_.flush();
}

}  // namespace godwit::cache
