// PrefixTree: which pages hold which 64-token blocks of prompts, and where state snapshots exist (design §9).
// A node is a page: node i is page i, so storage is fixed by the page pool and a page is never in two places.
// Keys are chained hashes; the ids themselves are kept and compared, so a collision can cost a hit, never an
// answer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/index_pool.h"

namespace godwit::cache {

constexpr int32_t kNone = -1;
constexpr size_t kBlock = 64;  // tokens of a page

struct TreeNode {
  uint64_t key = 0;  // hash of the parent's key and the 64 ids
  uint64_t salt = 0;
  int32_t parent = kNone;  // kNone: a first block
  int32_t first_child = kNone;
  int32_t next_sibling = kNone, previous_sibling = kNone;
  int32_t next_in_bucket = kNone;
  int32_t snapshot = kNone;  // state after this block
  int32_t refs = 0;          // leases that read this page
  int32_t depth = 0;         // blocks up to and including this one
  int32_t leaf = kNone;      // its place in the list of leaves
  int64_t used = 0;          // tick of its last use
  bool present = false;
};

class PrefixTree {
 public:
  PrefixTree(int32_t pages, int32_t snapshots);

  // The child of `parent` (kNone = root of `salt`) that holds `block`, or kNone.
  int32_t find(int32_t parent, uint64_t salt, std::span<const int32_t> block) const;
  // Makes `page` the node of `block` under `parent`. The block must not be there yet.
  void insert(int32_t page, int32_t parent, uint64_t salt, std::span<const int32_t> block);
  // Tokens that `block` shares with the closest child of `parent`.
  int64_t common(int32_t parent, std::span<const int32_t> block) const;
  // Was `block` under `parent` dropped not long ago?
  bool dropped(int32_t parent, uint64_t salt, std::span<const int32_t> block) const;

  TreeNode& node(int32_t page) { return nodes_[static_cast<size_t>(page)]; }
  const TreeNode& node(int32_t page) const { return nodes_[static_cast<size_t>(page)]; }
  void touch(int32_t page) { node(page).used = ++tick_; }

  // Snapshots. attach() gives the index to a node that has none; recompute_from is the position of the
  // snapshot before it.
  void attach(int32_t page, int32_t snapshot, int64_t recompute_from);
  int32_t snapshot_count() const { return attached_; }
  void pin(int32_t snapshot) { ++holders_[static_cast<size_t>(snapshot)].pins; }
  void unpin(int32_t snapshot) { --holders_[static_cast<size_t>(snapshot)].pins; }
  // The least valuable unpinned snapshot: recompute time lost (tokens) over age. kNone: all are pinned.
  int32_t weakest_snapshot() const;
  int32_t holder_of(int32_t snapshot) const { return holders_[static_cast<size_t>(snapshot)].page; }
  void detach(int32_t snapshot);

  // The least valuable block without children that no lease reads: where a branch may be dropped. kNone: all
  // are in use.
  int32_t weakest_leaf() const;
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
  void release(int32_t page);

 private:
  struct Holder {
    int32_t page = kNone;
    int32_t pins = 0;
    int64_t saves = 0;  // tokens a hit here saves over the snapshot before it
  };
  static constexpr size_t kDropped = 4096;  // remembered keys of dropped blocks

  uint64_t key_of(int32_t parent, uint64_t salt, std::span<const int32_t> block) const;
  bool holds(int32_t page, std::span<const int32_t> block) const;
  void remove(int32_t page);
  void add_leaf(int32_t page);
  void remove_leaf(int32_t page);
  double worth(int32_t leaf) const;

  std::vector<TreeNode> nodes_;    // [pages]
  std::vector<int32_t> ids_;       // [pages, 64]
  std::vector<int32_t> buckets_;   // heads of chains, a power of two
  std::vector<Holder> holders_;    // [snapshots]
  std::vector<uint64_t> dropped_;  // by key modulo its size
  std::vector<int32_t> leaves_;    // blocks without a child, in no order: where branches can be dropped
  int32_t first_root_ = kNone;
  int32_t size_ = 0;
  int32_t unreferenced_ = 0;
  int32_t attached_ = 0;
  int64_t tick_ = 0;
};

}  // namespace godwit::cache
