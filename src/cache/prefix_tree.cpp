#include "cache/prefix_tree.h"

#include <algorithm>
#include <bit>

#include "cache/cache.h"

namespace godwit::cache {

PrefixTree::PrefixTree(int32_t pages, int32_t snapshots)
    : nodes_(static_cast<size_t>(pages)),
      ids_(static_cast<size_t>(pages) * kPageTokens),
      buckets_(std::bit_ceil(static_cast<size_t>(pages) * 2), kNone),
      holders_(static_cast<size_t>(snapshots)),
      dropped_(kDropped, 0),
      leaves_(pages),
      snapshots_(snapshots) {}

bool PrefixTree::holds(int32_t page, std::span<const int32_t> block) const {
  return std::equal(block.begin(), block.end(),
                    ids_.begin() + static_cast<std::ptrdiff_t>(page) * kPageTokens);
}

int32_t PrefixTree::find(int32_t parent, uint64_t key, std::span<const int32_t> block) const {
  int32_t at = buckets_[key & (buckets_.size() - 1)];
  while (at != kNone && !(node(at).key == key && node(at).parent == parent && holds(at, block)))
    at = node(at).next_in_bucket;
  return at;
}

void PrefixTree::insert(int32_t page, int32_t parent, uint64_t key, std::span<const int32_t> block) {
  TreeNode& n = node(page);
  GODWIT_ASSERT(!n.present && static_cast<int64_t>(block.size()) == kPageTokens);
  std::copy(block.begin(), block.end(), ids_.begin() + static_cast<std::ptrdiff_t>(page) * kPageTokens);
  n = TreeNode{};
  n.present = true;
  n.key = key;
  n.parent = parent;
  n.depth = parent == kNone ? 1 : node(parent).depth + 1;
  int32_t& bucket = buckets_[n.key & (buckets_.size() - 1)];
  n.next_in_bucket = bucket;
  bucket = page;
  int32_t& first = parent == kNone ? first_root_ : node(parent).first_child;
  n.next_sibling = first;
  if (first != kNone) node(first).previous_sibling = page;
  first = page;
  if (parent != kNone) rank(parent);
  ++size_;
  ++unreferenced_;
  touch(page);
}

int64_t PrefixTree::common(int32_t parent, std::span<const int32_t> block) const {
  constexpr int kNewest = 64;
  int64_t best = 0;
  int32_t at = parent == kNone ? first_root_ : node(parent).first_child;
  for (int i = 0; i < kNewest && at != kNone; ++i, at = node(at).next_sibling) {
    const auto ids = ids_.begin() + static_cast<std::ptrdiff_t>(at) * kPageTokens;
    best = std::max<int64_t>(best, std::mismatch(block.begin(), block.end(), ids).first - block.begin());
  }
  return best;
}

void PrefixTree::reference(int32_t page) {
  mark_used(page);
  hold(page);
}

void PrefixTree::hold(int32_t page) {
  if (node(page).refs++ == 0) --unreferenced_;
  rank(page);
}

void PrefixTree::release(int32_t page) {
  GODWIT_ASSERT(node(page).refs > 0);
  if (--node(page).refs > 0) return;
  ++unreferenced_;
  rank(page);
}

void PrefixTree::mark_used(int32_t page) {
  node(page).used = ++tick_;
  node(page).floor = floor_;
}

// Puts a block, and the snapshot it may have, where it belongs among what may be dropped.
void PrefixTree::rank(int32_t page) {
  const TreeNode& n = node(page);
  // A leaf without a snapshot saves nothing: those go first, the oldest of them before the others.
  EvictionOrder::Rank rank{0, n.used};
  bool pinned = false;
  if (n.snapshot != kNone) {
    const Holder& h = holders_[static_cast<size_t>(n.snapshot)];
    rank.worth = n.floor + h.saves;
    pinned = h.pins > 0;
    if (pinned) {
      snapshots_.remove(n.snapshot);
    } else {
      snapshots_.set(n.snapshot, rank);
    }
  }
  if (n.first_child == kNone && n.refs == 0 && !pinned) {
    leaves_.set(page, rank);
  } else {
    leaves_.remove(page);
  }
}

void PrefixTree::attach(int32_t page, int32_t snapshot, int64_t recompute_from) {
  GODWIT_ASSERT(node(page).snapshot == kNone);
  node(page).snapshot = snapshot;
  holders_[static_cast<size_t>(snapshot)] = {page, 0, node(page).depth * kPageTokens - recompute_from};
  ++attached_;
  rank(page);
}

void PrefixTree::detach(int32_t snapshot) {
  Holder& h = holders_[static_cast<size_t>(snapshot)];
  GODWIT_ASSERT(h.page != kNone && h.pins == 0);
  const int32_t page = h.page;
  floor_ = std::max(floor_, node(page).floor + h.saves);
  node(page).snapshot = kNone;
  h = {};
  --attached_;
  snapshots_.remove(snapshot);
  rank(page);
}

void PrefixTree::path_to(int32_t page, std::vector<int32_t>& path) const {
  const size_t first = path.size();
  for (; page != kNone; page = node(page).parent) path.push_back(page);
  std::reverse(path.begin() + static_cast<std::ptrdiff_t>(first), path.end());
}

void PrefixTree::remove_branch(int32_t leaf, std::vector<int32_t>& pages, std::vector<int32_t>& snapshots) {
  // Blocks above that neither branch, nor are read, nor end at a snapshot of their own led only here.
  for (int32_t at = leaf; at != kNone;) {
    TreeNode& n = node(at);
    if (n.first_child != kNone || n.refs > 0 || (at != leaf && n.snapshot != kNone)) break;
    if (n.snapshot != kNone) {
      snapshots.push_back(n.snapshot);
      detach(n.snapshot);
    }
    const int32_t parent = n.parent;
    remove(at);
    pages.push_back(at);
    at = parent;
  }
}

void PrefixTree::remove(int32_t page) {
  TreeNode& n = node(page);
  leaves_.remove(page);
  dropped_[n.key % kDropped] = n.key;
  int32_t* link = &buckets_[n.key & (buckets_.size() - 1)];
  while (*link != page) link = &node(*link).next_in_bucket;
  *link = n.next_in_bucket;
  if (n.previous_sibling != kNone) {
    node(n.previous_sibling).next_sibling = n.next_sibling;
  } else {
    (n.parent == kNone ? first_root_ : node(n.parent).first_child) = n.next_sibling;
  }
  if (n.next_sibling != kNone) node(n.next_sibling).previous_sibling = n.previous_sibling;
  const int32_t parent = n.parent;
  n = TreeNode{};
  if (parent != kNone) rank(parent);
  --size_;
  --unreferenced_;
}

}  // namespace godwit::cache
