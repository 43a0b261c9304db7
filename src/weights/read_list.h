// What to read of a checkpoint's files and where it goes, cut into chunks that one read each serves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weights/checkpoint.h"
#include "weights/inventory.h"
#include "weights/shard_plan.h"

namespace godwit {

// Direct reads begin and end at multiples of this, in the file and in memory: the largest logical block in
// use.
constexpr uint64_t kReadAlign = 4096;

// `rows` pieces of `row_bytes`, `stride` bytes apart where they come from, packed where they go.
struct ReadRows {
  uint64_t row_bytes = 0, rows = 1, stride = 0;
  std::byte* to = nullptr;  // in the memory of whoever places it; never dereferenced here

  uint64_t bytes() const { return row_bytes * rows; }
  uint64_t extent() const { return rows == 0 ? 0 : (rows - 1) * stride + row_bytes; }
};

struct ReadPart : ReadRows {
  uint64_t at = 0;  // of the first row, from the chunk's first byte
};

// Bytes [offset, offset + bytes) of a file, and the parts that lie in them.
struct ReadChunk {
  uint32_t file = 0;
  uint64_t offset = 0, bytes = 0;
  uint64_t wanted = 0;  // bytes of the parts
  std::vector<ReadPart> parts;
};

class ReadList {
 public:
  // The part of a tensor, seen as a matrix [shape[0], product of the rest], packed to `to`.
  void add(const TensorRef& tensor, const Slice& slice, std::byte* to);
  void add(uint32_t file, uint64_t offset, const ReadRows& rows);
  // Of all that was added.
  uint64_t bytes() const { return bytes_; }

  // In the order of the files. No chunk, widened to kReadAlign, is larger than `most` (a multiple of
  // kReadAlign). What lies up to kReadGap apart shares a chunk, so columns of a matrix are read as whole
  // rows.
  std::vector<ReadChunk> chunks(uint64_t most) const;

 private:
  struct Item : ReadRows {
    uint32_t file = 0;
    uint64_t offset = 0;
  };
  // Sorted; rows that are far apart or longer than `longest_row` each an item of their own.
  std::vector<Item> in_file_order(uint64_t longest_row) const;

  std::vector<Item> items_;
  uint64_t bytes_ = 0;
};

// Reading on over so many unwanted bytes (65 us at 1 GB/s a thread) takes less time than another request.
constexpr uint64_t kReadGap = 64 << 10;

// The block scales that belong to a slice of an F8 weight (check_fp8_cuts has passed).
Slice scale_slice(const Slice& weight);

}  // namespace godwit
