// Byte-pair merging (api spec §1.3 rule 4): lowest rank first, ties leftmost.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace godwit::tokenizer {

// Which neighbouring tokens merge, in which order.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank;
    int32_t result;
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  explicit MergeTable(size_t merges);
  // A pair that comes again takes its later rank, as in the Hugging Face loader. At most as many pairs as
  // announced.
  void add(int32_t left, int32_t right, Merge merge);
  // rank kNone when the pair does not merge.
  Merge find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    int32_t left = -1;
    int32_t right = -1;
    Merge merge{kNone, -1};
  };
  static uint64_t hash(int32_t left, int32_t right);
  size_t slot_of(int32_t left, int32_t right, uint64_t hash) const;

  std::vector<Slot> slots_;  // open addressing, a power of two, at most 2/3 full
  // Most neighbours do not merge. A bit a hash, eight times as many as slots, answers for them from the L2
  // cache; the slots of a large vocabulary do not fit there.
  std::vector<uint64_t> known_;
};

// Memory of one merging thread, kept between pieces.
struct BpeScratch {
  struct Node {
    int32_t id;
    uint32_t previous;
    uint32_t next;
    MergeTable::Merge merge;  // of this node with the next one
  };
  std::vector<Node> nodes;
  std::vector<uint64_t> heap;  // rank << 32 | node
};

// Appends the ids of `piece` (fewer than 2^32 - 1 bytes). Time O(n log n).
// byte_ids: the id of each single byte, [256].
void merge_piece(std::string_view piece, const std::array<int32_t, 256>& byte_ids, const MergeTable& merges,
                 BpeScratch& scratch, std::vector<int32_t>& out);

}  // namespace godwit::tokenizer
