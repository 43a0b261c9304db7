#include "cache/cache.h"

#include <algorithm>
#include <utility>

#include "base/fault.h"

namespace godwit::cache {
namespace {

std::span<const int32_t> block(std::span<const int32_t> prompt, int64_t index) {
  return prompt.subspan(static_cast<size_t>(index * kPageTokens), kPageTokens);
}

}  // namespace

Cache::Cache(const CacheSizes& sizes)
    : pages_(sizes.pages, 1),
      slots_(sizes.slots, 1),
      snapshots_(sizes.snapshots, 0),
      tree_(sizes.pages, sizes.snapshots),
      reuse_(sizes.snapshots > 0) {
  freed_pages_.reserve(static_cast<size_t>(sizes.pages));
  freed_snapshots_.reserve(static_cast<size_t>(sizes.snapshots));
}

// Fills lease.pages with the blocks up to the deepest usable snapshot, and says why the rest is a miss.
void Cache::look_up(std::span<const int32_t> prompt, Lease& lease) {
  lease.cached = lease.branch = lease.last_snapshot = 0;
  lease.restore = kNone;
  lease.first_difference_at = -1;
  if (!reuse_) {
    lease.miss = MissReason::disabled;
    return;
  }
  const int64_t limit = last_boundary(static_cast<int64_t>(prompt.size())) / kPageTokens;
  if (limit == 0) {
    lease.miss = MissReason::too_short;
    return;
  }
  int64_t matched = 0, usable = 0;
  int32_t at = kNone;
  for (; matched < limit; ++matched) {
    const int32_t next = tree_.find(at, lease.salt, block(prompt, matched));
    if (next == kNone) break;
    at = next;
    lease.pages.push_back(at);
    if (tree_.node(at).snapshot != kNone) usable = matched + 1;
  }
  if (usable == limit) {
    lease.miss = MissReason::none;
  } else if (matched > usable) {
    lease.miss = MissReason::no_snapshot;
    lease.branch = matched * kPageTokens;
  } else if (tree_.dropped(at, lease.salt, block(prompt, matched))) {
    lease.miss = MissReason::evicted;
  } else {
    lease.miss = MissReason::first_difference;
    lease.first_difference_at = matched * kPageTokens + tree_.common(at, block(prompt, matched));
  }
  lease.pages.resize(static_cast<size_t>(usable));
  lease.cached = lease.last_snapshot = usable * kPageTokens;
  if (usable > 0) lease.restore = tree_.node(lease.pages.back()).snapshot;
}

bool Cache::acquire(std::span<const int32_t> prompt, int64_t tokens, Lease& lease) {
  GODWIT_ASSERT(!lease.held() && lease.pages.empty());
  if (slots_.available() == 0) return false;
  look_up(prompt, lease);
  // What is reused is referenced before room is made, or making room could drop it.
  lease.shared = static_cast<int32_t>(lease.pages.size());
  for (const int32_t page : lease.pages) tree_.reference(page);
  if (lease.restore != kNone) tree_.pin(lease.restore);
  lease.slot = slots_.take();
  // A mutant of the gate cached = cold (design §2): a hit that reads a page of somebody else.
  if (lease.shared > 1 && GODWIT_FAULT("mutant.page")) std::swap(lease.pages[0], lease.pages[1]);
  if (grow(lease, tokens)) return true;
  release(lease);
  return false;
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
    if (!drop_branch()) return false;
  return true;
}

bool Cache::drop_branch() {
  freed_pages_.clear();
  freed_snapshots_.clear();
  if (!tree_.drop_branch(freed_pages_, freed_snapshots_)) return false;
  for (const int32_t page : freed_pages_) pages_.give(page);
  for (const int32_t snapshot : freed_snapshots_) snapshots_.give(snapshot);
  evictions_ += freed_pages_.size();
  return true;
}

void Cache::release(Lease& lease) {
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
  lease.shared = 0;
  slots_.give(lease.slot);
  lease.slot = kNone;
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
    const int32_t dropped = tree_.drop_snapshot();
    if (dropped == kNone) return kNone;
    snapshots_.give(dropped);
  }
  lease.pending = snapshots_.take();
  lease.pending_position = position;
  return lease.pending;
}

void Cache::commit(Lease& lease, std::span<const int32_t> prompt, int64_t position) {
  if (!reuse_) return;
  const int32_t full = static_cast<int32_t>(position / kPageTokens);
  for (int32_t i = lease.shared; i < full; ++i) {
    const int32_t parent = i == 0 ? kNone : lease.pages[static_cast<size_t>(i) - 1];
    int32_t& page = lease.pages[static_cast<size_t>(i)];
    const int32_t known = tree_.find(parent, lease.salt, block(prompt, i));
    if (known != kNone) {
      // Another request computed the same block meanwhile: the same bits, so one of the two pages is enough.
      pages_.give(page);
      page = known;
    } else {
      tree_.insert(page, parent, lease.salt, block(prompt, i));
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

void Cache::flush() {
  while (drop_branch()) {
  }
}

}  // namespace godwit::cache
