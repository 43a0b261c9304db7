#include "cache/prefix_tree.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/hash.h"
#include "cache/cache.h"

namespace godwit::cache {

PrefixTree::PrefixTree(int32_t pages, int32_t snapshots)
    : nodes_(static_cast<size_t>(pages)),
      ids_(static_cast<size_t>(pages) * kPageTokens),
      buckets_(std::bit_ceil(static_cast<size_t>(pages) * 2), kNone),
      holders_(static_cast<size_t>(snapshots)),
      dropped_(kDropped, 0) {
  leaves_.reserve(static_cast<size_t>(pages));
}

uint64_t PrefixTree::key_of(int32_t parent, uint64_t salt, std::span<const int32_t> block) const {
  return hash_ids(block, parent == kNone ? mix64(salt ^ kHashSeed) : node(parent).key);
}

bool PrefixTree::holds(int32_t page, std::span<const int32_t> block) const {
  return std::equal(block.begin(), block.end(),
                    ids_.begin() + static_cast<std::ptrdiff_t>(page) * kPageTokens);
}

int32_t PrefixTree::find(int32_t parent, uint64_t salt, std::span<const int32_t> block) const {
  const uint64_t key = key_of(parent, salt, block);
  int32_t at = buckets_[key & (buckets_.size() - 1)];
  while (at != kNone && !(node(at).key == key && node(at).parent == parent && holds(at, block)))
    at = node(at).next_in_bucket;
  return at;
}

void PrefixTree::insert(int32_t page, int32_t parent, uint64_t salt, std::span<const int32_t> block) {
  TreeNode& n = node(page);
  GODWIT_ASSERT(!n.present && static_cast<int64_t>(block.size()) == kPageTokens);
  std::copy(block.begin(), block.end(), ids_.begin() + static_cast<std::ptrdiff_t>(page) * kPageTokens);
  n = TreeNode{};
  n.present = true;
  n.key = key_of(parent, salt, block);
  n.salt = salt;
  n.parent = parent;
  n.depth = parent == kNone ? 1 : node(parent).depth + 1;
  int32_t& bucket = buckets_[n.key & (buckets_.size() - 1)];
  n.next_in_bucket = bucket;
  bucket = page;
  int32_t& first = parent == kNone ? first_root_ : node(parent).first_child;
  n.next_sibling = first;
  if (first == kNone && parent != kNone) remove_leaf(parent);
  add_leaf(page);
  if (first != kNone) node(first).previous_sibling = page;
  first = page;
  ++size_;
  ++unreferenced_;
  touch(page);
}

int64_t PrefixTree::common(int32_t parent, std::span<const int32_t> block) const {
  int64_t best = 0;
  for (int32_t at = parent == kNone ? first_root_ : node(parent).first_child; at != kNone;
       at = node(at).next_sibling) {
    const auto ids = ids_.begin() + static_cast<std::ptrdiff_t>(at) * kPageTokens;
    best = std::max<int64_t>(best, std::mismatch(block.begin(), block.end(), ids).first - block.begin());
  }
  return best;
}

bool PrefixTree::dropped(int32_t parent, uint64_t salt, std::span<const int32_t> block) const {
  const uint64_t key = key_of(parent, salt, block);
  return dropped_[key % kDropped] == key;
}

void PrefixTree::reference(int32_t page) {
  if (node(page).refs++ == 0) --unreferenced_;
  touch(page);
}

void PrefixTree::release(int32_t page) {
  GODWIT_ASSERT(node(page).refs > 0);
  if (--node(page).refs == 0) ++unreferenced_;
}

void PrefixTree::attach(int32_t page, int32_t snapshot, int64_t recompute_from) {
  GODWIT_ASSERT(node(page).snapshot == kNone);
  node(page).snapshot = snapshot;
  holders_[static_cast<size_t>(snapshot)] = {page, 0, node(page).depth * kPageTokens - recompute_from};
  ++attached_;
}

int32_t PrefixTree::weakest_snapshot() const {
  int32_t victim = kNone;
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < holders_.size(); ++i) {
    const Holder& h = holders_[i];
    if (h.page == kNone || h.pins > 0) continue;
    const double worth = static_cast<double>(h.saves) / static_cast<double>(tick_ - node(h.page).used + 1);
    if (worth >= least) continue;
    least = worth;
    victim = static_cast<int32_t>(i);
  }
  return victim;
}

void PrefixTree::detach(int32_t snapshot) {
  Holder& h = holders_[static_cast<size_t>(snapshot)];
  GODWIT_ASSERT(h.page != kNone && h.pins == 0);
  node(h.page).snapshot = kNone;
  h = {};
  --attached_;
}

// What is lost by dropping a leaf, in tokens to recompute, by age. A leaf without a snapshot saves nothing:
// those go first, the oldest of them before the others.
double PrefixTree::worth(int32_t leaf) const {
  const TreeNode& n = node(leaf);
  if (n.snapshot == kNone) return -static_cast<double>(tick_ - n.used + 1);
  return static_cast<double>(holders_[static_cast<size_t>(n.snapshot)].saves) /
         static_cast<double>(tick_ - n.used + 1);
}

int32_t PrefixTree::weakest_leaf() const {
  int32_t victim = kNone;
  double least = std::numeric_limits<double>::infinity();
  for (const int32_t i : leaves_) {
    const TreeNode& n = node(i);
    if (n.refs > 0) continue;
    if (n.snapshot != kNone && holders_[static_cast<size_t>(n.snapshot)].pins > 0) continue;
    const double w = worth(i);
    if (w >= least) continue;
    least = w;
    victim = i;
  }
  return victim;
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

void PrefixTree::add_leaf(int32_t page) {
  node(page).leaf = static_cast<int32_t>(leaves_.size());
  leaves_.push_back(page);
}

void PrefixTree::remove_leaf(int32_t page) {
  const int32_t at = node(page).leaf;
  leaves_[static_cast<size_t>(at)] = leaves_.back();
  node(leaves_.back()).leaf = at;
  leaves_.pop_back();
  node(page).leaf = kNone;
}

void PrefixTree::remove(int32_t page) {
  TreeNode& n = node(page);
  remove_leaf(page);
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
  if (n.parent != kNone && node(n.parent).first_child == kNone) add_leaf(n.parent);
  n = TreeNode{};
  --size_;
  --unreferenced_;
}

}  // namespace godwit::cache
