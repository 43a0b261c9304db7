// Chunks of a read list: every byte of every part, in reads that fit their buffer.
#include "weights/read_list.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace godwit {
namespace {

struct Wanted {
  uint32_t file;
  uint64_t offset;
  ReadRows rows;
};

// Places what `list` says from images of the files, chunk by chunk, as a reader does.
void place_all(const ReadList& list, const std::vector<std::vector<std::byte>>& files, uint64_t most) {
  uint64_t wanted = 0;
  for (const ReadChunk& chunk : list.chunks(most)) {
    const std::vector<std::byte>& file = files[chunk.file];
    ASSERT_GT(chunk.bytes, 0u);
    ASSERT_LE(chunk.offset + chunk.bytes, file.size());
    const uint64_t begin = chunk.offset / kReadAlign * kReadAlign;
    const uint64_t end = (chunk.offset + chunk.bytes + kReadAlign - 1) / kReadAlign * kReadAlign;
    ASSERT_LE(end - begin, most);
    uint64_t bytes = 0;
    for (const ReadPart& part : chunk.parts) {
      ASSERT_LE(part.at + part.extent(), chunk.bytes);
      for (uint64_t r = 0; r < part.rows; ++r)
        std::memcpy(part.to + r * part.row_bytes, &file[chunk.offset + part.at + r * part.stride],
                    part.row_bytes);
      bytes += part.bytes();
    }
    EXPECT_EQ(bytes, chunk.wanted);
    wanted += bytes;
  }
  EXPECT_EQ(wanted, list.bytes());
}

TEST(ReadList, CoversEveryByteOfRandomParts) {
  std::mt19937_64 random(7);
  const auto below = [&](uint64_t n) { return random() % n; };
  constexpr uint64_t kFile = 3 << 20;
  std::vector<std::vector<std::byte>> files(2, std::vector<std::byte>(kFile));
  for (auto& file : files)
    for (std::byte& b : file) b = static_cast<std::byte>(random());
  for (int round = 0; round < 300; ++round) {
    std::vector<Wanted> wanted;
    uint64_t bytes = 0;
    for (uint64_t i = below(12); i-- > 0;) {
      ReadRows rows;
      rows.row_bytes = below(round % 3 == 0 ? 200'000 : 700);
      rows.rows = below(round % 2 == 0 ? 40 : 3);
      // Columns beside it, now and then more of them than a chunk reads over.
      rows.stride = rows.row_bytes + (below(4) == 0 ? below(kReadGap * 3) : below(600));
      if (rows.extent() > kFile) continue;
      wanted.push_back({static_cast<uint32_t>(below(2)), below(kFile - rows.extent() + 1), rows});
      bytes += rows.bytes();
    }
    std::vector<std::byte> placed(bytes, std::byte{0xee});
    ReadList list;
    std::byte* to = placed.data();
    for (Wanted& w : wanted) {
      w.rows.to = to;
      to += w.rows.bytes();
      list.add(w.file, w.offset, w.rows);
    }
    ASSERT_EQ(list.bytes(), bytes);
    for (const uint64_t most : {2 * kReadAlign, 16 * kReadAlign, uint64_t{1} << 20}) {
      std::fill(placed.begin(), placed.end(), std::byte{0xee});
      place_all(list, files, most);
      if (HasFatalFailure()) return;
      for (const Wanted& w : wanted)
        for (uint64_t r = 0; r < w.rows.rows; ++r)
          ASSERT_EQ(std::memcmp(w.rows.to + r * w.rows.row_bytes,
                                &files[w.file][w.offset + r * w.rows.stride], w.rows.row_bytes),
                    0)
              << "round " << round << ", most " << most;
    }
  }
}

TEST(ReadList, SharesAReadAcrossSmallGapsOnly) {
  std::vector<std::byte> to(3 * 4096);
  const ReadRows part{4096, 1, 4096, to.data()};
  for (const auto& [offset, chunks] : {std::pair{4096 + kReadGap, 1u}, {4096 + kReadGap + 1, 2u}}) {
    ReadList list;
    list.add(0, offset, part);  // added out of order
    list.add(0, 0, part);
    EXPECT_EQ(list.chunks(16 << 20).size(), chunks);
  }
  ReadList other_file;
  other_file.add(0, 0, part);
  other_file.add(1, 4096, part);
  EXPECT_EQ(other_file.chunks(16 << 20).size(), 2u);
  // A long tensor is cut where aligned reads meet, so that no block is read twice.
  ReadList list;
  list.add(0, 100, {40 << 20, 1, 40 << 20, nullptr});
  const std::vector<ReadChunk> chunks = list.chunks(16 << 20);
  ASSERT_EQ(chunks.size(), 3u);
  EXPECT_EQ(chunks[1].offset, uint64_t{16} << 20);
  EXPECT_EQ(chunks[2].offset, uint64_t{32} << 20);
}

TEST(ReadList, FindsTheScalesOfASlice) {
  const Slice inside = scale_slice({{32, 96}, {256, 384}});
  EXPECT_EQ(inside.rows.begin, 0);
  EXPECT_EQ(inside.rows.end, 1);
  EXPECT_EQ(inside.columns.begin, 2);
  EXPECT_EQ(inside.columns.end, 3);
  const Slice ragged = scale_slice({{128, 300}, {0, 130}});
  EXPECT_EQ(ragged.rows.begin, 1);
  EXPECT_EQ(ragged.rows.end, 3);
  EXPECT_EQ(ragged.columns.end, 2);
  EXPECT_TRUE(scale_slice({}).empty());
}

}  // namespace
}  // namespace godwit
