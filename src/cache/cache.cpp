#include "cache/cache.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/fault.h"

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
      reuse_(sizes.snapshots > 0) {
  freed_pages_.reserve(static_cast<size_t>(sizes.pages));
  freed_snapshots_.reserve(static_cast<size_t>(sizes.snapshots));
  host_path_.reserve(static_cast<size_t>(sizes.host.pages));
  returning_.reserve(static_cast<size_t>(sizes.host.pages));
  moves_.reserve(2 * static_cast<size_t>(sizes.pages + sizes.snapshots));
}

// Appends the device's blocks of the prompt to lease.pages, and looks whether the host reaches further.
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
  host_path_.clear();
  const HostTier::Hit hit = host_.find(prompt, limit, host_path_);
  if (hit.blocks > found.usable) found.host = hit;
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
  GODWIT_ASSERT(!lease.held() && lease.pages.empty());
  if (slots_.available() == 0) return false;
  const int64_t limit = last_boundary(static_cast<int64_t>(prompt.ids.size())) / kPageTokens;
  const Found found = look_up(prompt, lease);
  explain(prompt, limit, found, lease);
  const bool from_host = found.host.blocks > 0;
  const int64_t reused = from_host ? found.host.blocks : found.usable;
  // Blocks the device has are shared even where the state comes from the host.
  const int64_t shared = std::min(found.matched, reused);
  lease.pages.resize(static_cast<size_t>(shared));
  lease.shared = static_cast<int32_t>(shared);
  lease.cached = lease.last_snapshot = reused * kPageTokens;
  lease.branch = found.matched > reused ? found.matched * kPageTokens : 0;
  lease.restore = !from_host && reused > 0 ? tree_.node(lease.pages.back()).snapshot : kNone;
  // What is reused is referenced before room is made, or making room could drop it.
  for (const int32_t page : lease.pages) tree_.reference(page);
  if (lease.restore != kNone) tree_.pin(lease.restore);
  if (from_host) host_.hold(host_path_.back(), found.host.snapshot);
  lease.slot = slots_.take();
  // A mutant of the gate cached = cold (design §2): a hit that reads a page of somebody else.
  if (lease.shared > 1 && GODWIT_FAULT("mutant.page")) std::swap(lease.pages[0], lease.pages[1]);
  if (!grow(lease, tokens)) {
    release(lease);
    return false;
  }
  if (from_host) {
    ++host_hits_;
    for (int64_t i = shared; i < reused; ++i)
      moves_.push_back({Move::What::page, Move::Way::in, host_path_[static_cast<size_t>(i)],
                        lease.pages[static_cast<size_t>(i)], lease.slot});
    moves_.push_back({Move::What::snapshot, Move::Way::in, found.host.snapshot, lease.slot, lease.slot});
  }
  return true;
}

bool Cache::grow(Lease& lease, int64_t tokens) {
  const int64_t missing = pages_for(tokens) - static_cast<int64_t>(lease.pages.size());
  if (missing <= 0) return true;
  if (!make_room(missing)) return false;
  for (int64_t i = 0; i < missing; ++i) lease.pages.push_back(pages_.take());
  return true;
}

bool Cache::make_room(int64_t pages) {
  if (pages > pages_.available() + tree_.unreferenced()) return false;
  while (pages > pages_.available())
    if (!drop_branch(true)) return false;
  return true;
}

bool Cache::drop_branch(bool keep_on_host) {
  const int32_t leaf = tree_.weakest_leaf();
  if (leaf == kNone) return false;
  if (keep_on_host && tree_.node(leaf).snapshot != kNone) host_.keep(tree_, leaf, moves_);
  freed_pages_.clear();
  freed_snapshots_.clear();
  tree_.remove_branch(leaf, freed_pages_, freed_snapshots_);
  for (const int32_t page : freed_pages_) pages_.give(page);
  for (const int32_t snapshot : freed_snapshots_) snapshots_.give(snapshot);
  evictions_ += freed_pages_.size();
  return true;
}

void Cache::release(Lease& lease) {
  if (lease.swapped()) {
    host_.forget(lease.pages, lease.host_slot);
    lease.pages.clear();
    lease.host_slot = kNone;
  }
  if (!lease.held()) return;
  restored(lease);
  if (lease.pending != kNone) snapshots_.give(lease.pending);
  lease.pending = kNone;
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

bool Cache::swap_out(Lease& lease) {
  GODWIT_ASSERT(lease.held() && lease.restore == kNone && lease.pending == kNone);
  returning_.assign(lease.pages.begin(), lease.pages.end());
  const int32_t host_slot = host_.swap_out(returning_, lease.slot, moves_);
  if (host_slot == kNone) return false;
  release(lease);
  lease.pages.assign(returning_.begin(), returning_.end());
  lease.host_slot = host_slot;
  return true;
}

bool Cache::swap_in(Lease& lease, int64_t tokens) {
  GODWIT_ASSERT(lease.swapped() && !lease.held());
  const int64_t pages = std::max(pages_for(tokens), static_cast<int64_t>(lease.pages.size()));
  if (slots_.available() == 0 || !make_room(pages)) return false;
  returning_.assign(lease.pages.begin(), lease.pages.end());
  lease.slot = slots_.take();
  lease.pages.clear();
  for (int64_t i = 0; i < pages; ++i) lease.pages.push_back(pages_.take());
  host_.swap_in(returning_, lease.host_slot, lease.pages, lease.slot, moves_);
  lease.host_slot = kNone;
  return true;
}

void Cache::restored(Lease& lease) {
  if (lease.restore == kNone) return;
  tree_.unpin(lease.restore);
  lease.restore = kNone;
}

int32_t Cache::reserve_snapshot(Lease& lease, int64_t position) {
  GODWIT_ASSERT(lease.pending == kNone && position % kPageTokens == 0);
  if (!reuse_) return kNone;
  if (snapshots_.available() == 0) {
    const int32_t dropped = tree_.weakest_snapshot();
    if (dropped == kNone) return kNone;
    host_.keep(tree_, tree_.holder_of(dropped), moves_);
    tree_.detach(dropped);
    snapshots_.give(dropped);
  }
  lease.pending = snapshots_.take();
  lease.pending_position = position;
  return lease.pending;
}

void Cache::commit(Lease& lease, const Prompt& prompt, int64_t position) {
  if (!reuse_) return;
  const int32_t full = static_cast<int32_t>(position / kPageTokens);
  for (int32_t i = lease.shared; i < full; ++i) {
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

void Cache::take_moves(std::vector<Move>& moves) {
  moves.insert(moves.end(), moves_.begin(), moves_.end());
  moves_.clear();
}

void Cache::distrust_host() {
  host_.settle();
  host_.flush();
}

void Cache::flush() {
  while (drop_branch(false)) {
  }
  distrust_host();
}

}  // namespace godwit::cache
