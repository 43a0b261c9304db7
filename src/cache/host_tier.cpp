#include "cache/host_tier.h"

#include "cache/cache.h"

namespace godwit::cache {

HostTier::HostTier(const HostSizes& sizes)
    : pages_(sizes.pages, 0),
      snapshots_(sizes.snapshots, 0),
      slots_(sizes.slots, 0),
      tree_(sizes.pages, sizes.snapshots) {
  path_.reserve(static_cast<size_t>(sizes.pages));
  freed_pages_.reserve(static_cast<size_t>(sizes.pages));
  freed_snapshots_.reserve(static_cast<size_t>(sizes.snapshots));
}

void HostTier::keep(const PrefixTree& device, int32_t last, std::vector<Move>& copies) {
  if (!enabled() || device.node(last).depth > pages_.capacity()) return;
  path_.clear();
  device.path_to(last, path_);
  int32_t at = kNone;
  size_t here = 0;
  int64_t last_snapshot = 0;
  for (; here < path_.size(); ++here) {
    const int32_t next = tree_.find(at, device.node(path_[here]).key, device.block_of(path_[here]));
    if (next == kNone) break;
    at = next;
    if (tree_.node(at).snapshot != kNone) last_snapshot = static_cast<int64_t>(here + 1) * kPageTokens;
  }
  if (here == path_.size() && tree_.node(at).snapshot != kNone) {
    tree_.touch(at);  // all of it came from here once
    return;
  }
  // What is here already must not be dropped to make room for the rest.
  if (at != kNone) tree_.reference(at);
  const bool room = make_room(static_cast<int64_t>(path_.size() - here), 1);
  if (at != kNone) tree_.release(at);
  if (!room) return;
  for (; here < path_.size(); ++here) {
    const int32_t page = pages_.take();
    tree_.insert(page, at, device.node(path_[here]).key, device.block_of(path_[here]));
    tree_.hold(page);
    copies.push_back({Move::What::page, Move::Way::out, path_[here], page, 0});
    at = page;
  }
  const int32_t snapshot = snapshots_.take();
  tree_.attach(at, snapshot, last_snapshot);
  tree_.pin(snapshot);
  copies.push_back({Move::What::snapshot, Move::Way::out, device.node(last).snapshot, snapshot, 0});
}

void HostTier::written(const Move& copy) {
  if (copy.what == Move::What::page) {
    tree_.release(copy.to);
  } else {
    tree_.unpin(copy.to);
  }
}

bool HostTier::make_room(int64_t pages, int32_t snapshots) {
  while (pages_.available() < pages || snapshots_.available() < snapshots)
    if (!drop()) return false;
  return true;
}

bool HostTier::drop() {
  const int32_t leaf = tree_.weakest_leaf();
  if (leaf == kNone) return false;
  freed_pages_.clear();
  freed_snapshots_.clear();
  tree_.remove_branch(leaf, freed_pages_, freed_snapshots_);
  for (const int32_t page : freed_pages_) pages_.give(page);
  for (const int32_t snapshot : freed_snapshots_) snapshots_.give(snapshot);
  return true;
}

HostTier::Hit HostTier::find(const Prompt& prompt, int64_t limit, std::vector<int32_t>& path) const {
  Hit hit;
  const size_t first = path.size();
  int32_t at = kNone;
  for (int64_t i = 0; i < limit; ++i) {
    at = tree_.find(at, prompt.key(i), prompt.block(i));
    if (at == kNone) break;
    path.push_back(at);
    if (tree_.node(at).snapshot == kNone) continue;
    hit.blocks = i + 1;
    hit.snapshot = tree_.node(at).snapshot;
  }
  path.resize(first + static_cast<size_t>(hit.blocks));
  return hit;
}

int32_t HostTier::take(size_t count, std::vector<int32_t>& pages) {
  if (slots_.available() == 0 || !make_room(static_cast<int64_t>(count), 0)) return kNone;
  for (size_t i = 0; i < count; ++i) pages.push_back(pages_.take());
  return slots_.take();
}

void HostTier::give(std::span<const int32_t> pages, int32_t slot) {
  for (const int32_t page : pages) pages_.give(page);
  slots_.give(slot);
}

void HostTier::hold(int32_t last_page, int32_t snapshot) {
  tree_.reference(last_page);  // a block that is read keeps the path above it
  tree_.pin(snapshot);
}

void HostTier::let_go(int32_t last_page, int32_t snapshot) {
  tree_.unpin(snapshot);
  tree_.release(last_page);
}

void HostTier::flush() {
  while (drop()) {
  }
}

}  // namespace godwit::cache
