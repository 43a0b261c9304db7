#include "weights/read_list.h"

#include <algorithm>

#include "weights/totals.h"

namespace godwit {
namespace {

uint64_t down(uint64_t offset) {
  return offset / kReadAlign * kReadAlign;
}

}  // namespace

void ReadList::add(const TensorRef& tensor, const Slice& slice, std::byte* to) {
  if (slice.empty() || tensor.bytes == 0) return;
  const auto size = static_cast<uint64_t>(size_of(tensor.dtype));
  const int64_t rows = tensor.shape.empty() ? 1 : tensor.shape[0];
  const uint64_t stride = static_cast<uint64_t>(tensor.elements() / rows) * size;
  const uint64_t first =
      static_cast<uint64_t>(slice.rows.begin) * stride + static_cast<uint64_t>(slice.columns.begin) * size;
  const ReadRows part{static_cast<uint64_t>(slice.columns.size()) * size,
                      static_cast<uint64_t>(slice.rows.size()), stride, to};
  GODWIT_ASSERT(first + part.extent() <= tensor.bytes);
  add(tensor.file_index, tensor.offset + first, part);
}

void ReadList::add(uint32_t file, uint64_t offset, const ReadRows& rows) {
  if (rows.bytes() == 0) return;
  bytes_ += rows.bytes();
  Item item{rows, file, offset};
  if (rows.rows == 1 || rows.stride == rows.row_bytes) {
    item.row_bytes = item.stride = rows.bytes();
    item.rows = 1;
  }
  items_.push_back(item);
}

std::vector<ReadList::Item> ReadList::in_file_order(uint64_t longest_row) const {
  std::vector<Item> items;
  for (const Item& item : items_) {
    if (item.stride - item.row_bytes <= kReadGap && item.row_bytes <= longest_row) {
      items.push_back(item);
      continue;
    }
    for (uint64_t r = 0; r < item.rows; ++r) {
      Item row = item;
      row.rows = 1;
      row.stride = item.row_bytes;
      row.offset += r * item.stride;
      row.to += r * item.row_bytes;
      items.push_back(row);
    }
  }
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return a.file != b.file ? a.file < b.file : a.offset < b.offset;
  });
  return items;
}

std::vector<ReadChunk> ReadList::chunks(uint64_t most) const {
  GODWIT_ASSERT(most % kReadAlign == 0 && most > 0);
  std::vector<ReadChunk> chunks;
  for (Item& item : in_file_order(most - kReadAlign)) {
    while (item.rows > 0) {
      const bool joins = !chunks.empty() && chunks.back().file == item.file &&
                         item.offset >= chunks.back().offset &&
                         item.offset <= chunks.back().offset + chunks.back().bytes + kReadGap;
      const uint64_t limit = down(joins ? chunks.back().offset : item.offset) + most;
      // Of one row as many bytes as fit; of many as many whole ones.
      ReadPart part{item, 0};
      if (item.rows == 1) {
        part.row_bytes = part.stride =
            item.offset < limit ? std::min(item.row_bytes, limit - item.offset) : 0;
      } else {
        const bool fits = item.offset + item.row_bytes <= limit;
        part.rows = fits ? std::min(item.rows, (limit - item.offset - item.row_bytes) / item.stride + 1) : 0;
      }
      if (!joins || part.bytes() == 0) chunks.push_back({item.file, item.offset, 0, 0, {}});
      if (part.bytes() == 0) continue;

      ReadChunk& chunk = chunks.back();
      part.at = item.offset - chunk.offset;
      chunk.bytes = std::max(chunk.bytes, part.at + part.extent());
      chunk.wanted += part.bytes();
      chunk.parts.push_back(part);
      item.to += part.bytes();
      if (part.row_bytes < item.row_bytes) {
        item.offset += part.row_bytes;
        item.row_bytes = item.stride = item.row_bytes - part.row_bytes;
      } else {
        item.offset += part.rows * item.stride;
        item.rows -= part.rows;
      }
    }
  }
  return chunks;
}

Slice scale_slice(const Slice& weight) {
  if (weight.empty()) return {};
  const auto blocks = [](const Range& r) {
    return Range{r.begin / kFp8Block, r.begin / kFp8Block + scale_count(r.size())};
  };
  return {blocks(weight.rows), blocks(weight.columns)};
}

}  // namespace godwit
