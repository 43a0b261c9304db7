// PrefixTree: which pages hold which 64-token blocks of prompts, and where state snapshots exist (design §9).
// A node is a page: node i is page i, so storage is fixed by the page pool and a page is never in two places.
// Keys are chained hashes; the ids themselves are kept and compared, so a collision can cost a hit, never an
// answer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/eviction_order.h"
#include "cache/index_pool.h"
#include "cache/prompt.h"

namespace godwit::cache {

constexpr int32_t kNone = -1;

struct TreeNode {
  uint64_t key = 0;        // of block_keys()
  int32_t parent = kNone;  // kNone: a first block
  int32_t first_child = kNone;
  int32_t next_sibling = kNone, previous_sibling = kNone;
  int32_t next_in_bucket = kNone;
  int32_t snapshot = kNone;  // state after this block
  int32_t refs = 0;          // leases that read this page
  int32_t depth = 0;         // blocks up to and including this one
  int64_t used = 0;          // tick of its last use …
  int64_t floor = 0;         // … and what was worth least to keep at that time
  bool present = false;
};

class PrefixTree {
 public:
  PrefixTree(int32_t pages, int32_t snapshots);

  // The child of `parent` (kNone: none) that holds `block`, whose key is `key`; or kNone.
  int32_t find(int32_t parent, uint64_t key, std::span<const int32_t> block) const;
  // Makes `page` the node of `block` under `parent`. The block must not be there yet.
  void insert(int32_t page, int32_t parent, uint64_t key, std::span<const int32_t> block);
  // Tokens that `block` shares with the closest of the newest children of `parent`: a root may have a hundred
  // thousand, and this only explains a miss.
  int64_t common(int32_t parent, std::span<const int32_t> block) const;
  // Was the block of that key dropped not long ago?
  bool dropped(uint64_t key) const { return dropped_[key % kDropped] == key; }

  TreeNode& node(int32_t page) { return nodes_[static_cast<size_t>(page)]; }
  const TreeNode& node(int32_t page) const { return nodes_[static_cast<size_t>(page)]; }
  void touch(int32_t page) {
    mark_used(page);
    rank(page);
  }

  // Snapshots. attach() gives the index to a node that has none; recompute_from is the position of the
  // snapshot before it.
  void attach(int32_t page, int32_t snapshot, int64_t recompute_from);
  int32_t snapshot_count() const { return attached_; }
  void pin(int32_t snapshot) {
    Holder& h = holders_[static_cast<size_t>(snapshot)];
    ++h.pins;
    rank(h.page);
  }
  void unpin(int32_t snapshot) {
    Holder& h = holders_[static_cast<size_t>(snapshot)];
    --h.pins;
    rank(h.page);
  }
  // The unpinned snapshot that is worth least. kNone: all are pinned.
  int32_t weakest_snapshot() const { return snapshots_.least(); }
  int32_t holder_of(int32_t snapshot) const { return holders_[static_cast<size_t>(snapshot)].page; }
  void detach(int32_t snapshot);

  // The block without children that no lease reads and that is worth least: where a branch may be dropped.
  // kNone: all are in use.
  int32_t weakest_leaf() const { return leaves_.least(); }
  // Removes it with the blocks above that only led to it. Appends what became free.
  void remove_branch(int32_t leaf, std::vector<int32_t>& pages, std::vector<int32_t>& snapshots);
  // The pages from the first block to `page`, in order, appended to `path`.
  void path_to(int32_t page, std::vector<int32_t>& path) const;
  std::span<const int32_t> block_of(int32_t page) const {
    return std::span(ids_).subspan(static_cast<size_t>(page) * kBlock, kBlock);
  }

  int32_t size() const { return size_; }                  // pages in the tree
  int32_t unreferenced() const { return unreferenced_; }  // of those, pages no lease reads
  void reference(int32_t page);
  // A reference that is no use: a copy of the page has to be made.
  void hold(int32_t page);
  void release(int32_t page);

 private:
  struct Holder {
    int32_t page = kNone;
    int32_t pins = 0;
    int64_t saves = 0;  // tokens a hit here saves over the snapshot before it
  };
  static constexpr size_t kDropped = 4096;  // remembered keys of dropped blocks

  bool holds(int32_t page, std::span<const int32_t> block) const;
  void remove(int32_t page);
  void mark_used(int32_t page);
  void rank(int32_t page);

  std::vector<TreeNode> nodes_;    // [pages]
  std::vector<int32_t> ids_;       // [pages, 64]
  std::vector<int32_t> buckets_;   // heads of chains, a power of two
  std::vector<Holder> holders_;    // [snapshots]
  std::vector<uint64_t> dropped_;  // by key modulo its size
  // What may be dropped. Worth is what was dropped last when it was used last, plus the tokens a hit there
  // saves (GreedyDual): as dear things go, the rest loses, and nothing has to be looked at for that.
  EvictionOrder leaves_;     // pages: blocks without a child that nobody reads
  EvictionOrder snapshots_;  // that nobody has pinned
  int64_t floor_ = 0;        // the worth of what was dropped last
  int32_t first_root_ = kNone;
  int32_t size_ = 0;
  int32_t unreferenced_ = 0;
  int32_t attached_ = 0;
  int64_t tick_ = 0;
};

}  // namespace godwit::cache
