#include "cache/host_tier.h"

#include "cache/cache.h"

namespace godwit::cache {

HostTier::HostTier(const HostSizes& sizes)
    : pages_(sizes.pages, 0),
      snapshots_(sizes.snapshots, 0),
      slots_(sizes.slots, 0),
      tree_(sizes.pages, sizes.snapshots) {
  leaving_pages_.reserve(static_cast<size_t>(sizes.pages));
  leaving_slots_.reserve(static_cast<size_t>(sizes.slots));
  held_.reserve(4096);  // admissions of one step
  path_.reserve(static_cast<size_t>(sizes.pages));
  freed_pages_.reserve(static_cast<size_t>(sizes.pages));
  freed_snapshots_.reserve(static_cast<size_t>(sizes.snapshots));
}

void HostTier::keep(const PrefixTree& device, int32_t last, std::vector<Move>& moves) {
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
    moves.push_back({Move::What::page, Move::Way::out, path_[here], page, 0});
    at = page;
  }
  const int32_t snapshot = snapshots_.take();
  tree_.attach(at, snapshot, last_snapshot);
  moves.push_back({Move::What::snapshot, Move::Way::out, device.node(last).snapshot, snapshot, 0});
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

int32_t HostTier::swap_out(std::vector<int32_t>& pages, int32_t slot, std::vector<Move>& moves) {
  if (slots_.available() == 0 || !make_room(static_cast<int64_t>(pages.size()), 0)) return kNone;
  for (int32_t& page : pages) {
    const int32_t here = pages_.take();
    moves.push_back({Move::What::page, Move::Way::out, page, here, 0});
    page = here;
  }
  const int32_t here = slots_.take();
  moves.push_back({Move::What::slot, Move::Way::out, slot, here, 0});
  return here;
}

void HostTier::swap_in(std::span<const int32_t> pages, int32_t slot, std::span<const int32_t> to,
                       int32_t to_slot, std::vector<Move>& moves) {
  for (size_t i = 0; i < pages.size(); ++i) {
    moves.push_back({Move::What::page, Move::Way::in, pages[i], to[i], to_slot});
    leaving_pages_.push_back(pages[i]);
  }
  moves.push_back({Move::What::slot, Move::Way::in, slot, to_slot, to_slot});
  leaving_slots_.push_back(slot);
}

void HostTier::forget(std::span<const int32_t> pages, int32_t slot) {
  for (const int32_t page : pages) pages_.give(page);
  slots_.give(slot);
}

void HostTier::hold(int32_t last_page, int32_t snapshot) {
  tree_.reference(last_page);  // a block that is read keeps the path above it
  tree_.pin(snapshot);
  held_.push_back({last_page, snapshot});
}

void HostTier::settle() {
  for (const Held& h : held_) {
    tree_.unpin(h.snapshot);
    tree_.release(h.page);
  }
  held_.clear();
  for (const int32_t page : leaving_pages_) pages_.give(page);
  for (const int32_t slot : leaving_slots_) slots_.give(slot);
  leaving_pages_.clear();
  leaving_slots_.clear();
}

void HostTier::flush() {
  while (drop()) {
  }
}

}  // namespace godwit::cache
