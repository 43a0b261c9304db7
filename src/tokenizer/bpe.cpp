#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace godwit::tokenizer {
namespace {

constexpr uint32_t kNoNode = UINT32_MAX;
constexpr size_t kShort = 48;           // bytes; below this a scan for the best pair beats a heap
constexpr size_t kKeptNodes = 1 << 16;  // scratch of longer pieces is given back

// Quadratic, but on at most kShort tokens that lie side by side.
void merge_short(std::string_view piece, const std::array<int32_t, 256>& byte_ids, const MergeTable& merges,
                 std::vector<int32_t>& out) {
  int32_t ids[kShort];
  MergeTable::Merge pairs[kShort];  // pairs[i]: ids[i] with ids[i + 1]
  size_t n = piece.size();
  for (size_t i = 0; i < n; ++i) ids[i] = byte_ids[static_cast<unsigned char>(piece[i])];
  for (size_t i = 0; i + 1 < n; ++i) pairs[i] = merges.find(ids[i], ids[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == MergeTable::kNone) break;
    ids[best] = pairs[best].result;
    std::copy(ids + best + 2, ids + n, ids + best + 1);
    if (best + 2 < n) std::copy(pairs + best + 2, pairs + n - 1, pairs + best + 1);
    --n;
    if (best + 1 < n) pairs[best] = merges.find(ids[best], ids[best + 1]);
    if (best > 0) pairs[best - 1] = merges.find(ids[best - 1], ids[best]);
  }
  out.insert(out.end(), ids, ids + n);
}

// A linked list of tokens and a heap of candidate pairs. An entry is stale when its node's pair has another
// rank by now: a pair's bytes only ever grow, so the same node never has the same pair twice.
void merge_long(std::string_view piece, const std::array<int32_t, 256>& byte_ids, const MergeTable& merges,
                BpeScratch& scratch, std::vector<int32_t>& out) {
  auto& nodes = scratch.nodes;
  auto& heap = scratch.heap;
  auto n = static_cast<uint32_t>(piece.size());
  nodes.resize(n);
  heap.clear();
  for (uint32_t i = 0; i < n; ++i) {
    nodes[i] = {byte_ids[static_cast<unsigned char>(piece[i])], i - 1, i + 1, {MergeTable::kNone, -1}};
  }
  nodes[n - 1].next = kNoNode;  // nodes[0].previous is kNoNode already: 0 - 1
  auto entry = [&](uint32_t i) { return static_cast<uint64_t>(nodes[i].merge.rank) << 32 | i; };
  auto look_up = [&](uint32_t i) {
    nodes[i].merge = nodes[i].next == kNoNode ? MergeTable::Merge{MergeTable::kNone, -1}
                                              : merges.find(nodes[i].id, nodes[nodes[i].next].id);
    return nodes[i].merge.rank != MergeTable::kNone;
  };
  for (uint32_t i = 0; i < n; ++i) {
    if (look_up(i)) heap.push_back(entry(i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  auto push = [&](uint32_t i) {
    if (!look_up(i)) return;
    heap.push_back(entry(i));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    uint64_t top = heap.back();
    heap.pop_back();
    auto i = static_cast<uint32_t>(top);
    if (nodes[i].merge.rank != static_cast<uint32_t>(top >> 32)) continue;
    uint32_t gone = nodes[i].next;
    nodes[i].id = nodes[i].merge.result;
    nodes[i].next = nodes[gone].next;
    nodes[gone].merge.rank = MergeTable::kNone;
    if (nodes[i].next != kNoNode) nodes[nodes[i].next].previous = i;
    push(i);
    if (nodes[i].previous != kNoNode) push(nodes[i].previous);
  }
  for (uint32_t i = 0; i != kNoNode; i = nodes[i].next) out.push_back(nodes[i].id);
  if (nodes.size() > kKeptNodes) scratch = {};
}

}  // namespace

MergeTable::MergeTable(size_t merges)
    : slots_(std::bit_ceil(merges + merges / 2 + 2)), known_(slots_.size() / 8 + 1) {}

uint64_t MergeTable::hash(int32_t left, int32_t right) {
  uint64_t pair = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  uint64_t product = pair * 0x9e3779b97f4a7c15ull;
  return product >> 32 ^ product;
}

size_t MergeTable::slot_of(int32_t left, int32_t right, uint64_t hash) const {
  size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    if (slots_[i].left < 0 || (slots_[i].left == left && slots_[i].right == right)) return i;
  }
}

void MergeTable::add(int32_t left, int32_t right, Merge merge) {
  uint64_t h = hash(left, right);
  slots_[slot_of(left, right, h)] = {left, right, merge};
  uint64_t bit = h & (slots_.size() * 8 - 1);
  known_[bit / 64] |= uint64_t{1} << bit % 64;
}

MergeTable::Merge MergeTable::find(int32_t left, int32_t right) const {
  uint64_t h = hash(left, right);
  uint64_t bit = h & (slots_.size() * 8 - 1);
  if (!(known_[bit / 64] >> bit % 64 & 1)) return {kNone, -1};
  return slots_[slot_of(left, right, h)].merge;
}

void merge_piece(std::string_view piece, const std::array<int32_t, 256>& byte_ids, const MergeTable& merges,
                 BpeScratch& scratch, std::vector<int32_t>& out) {
  if (piece.empty()) return;
  if (piece.size() <= kShort) return merge_short(piece, byte_ids, merges, out);
  merge_long(piece, byte_ids, merges, scratch, out);
}

}  // namespace godwit::tokenizer
