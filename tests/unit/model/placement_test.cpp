// Weights and step arrays on a backend that cannot address the host: everything is copied, strides are
// packed, and a step costs one upload.
#include <gtest/gtest.h>

#include <cstring>

#include "far_memory.h"
#include "model/glm5_next/step_arrays.h"

namespace godwit::model {
namespace {

TEST(Arena, PacksTheRowsOfASlice) {
  FarMemory memory;
  Arena arena(memory);
  std::vector<f8_e4m3> codes(256 * 300);
  for (size_t i = 0; i < codes.size(); ++i) codes[i].bits = static_cast<uint8_t>(i % 251);
  // Columns 128 … 255 of [256, 300].
  const View slice = make_view(codes.data(), DType::f8_e4m3, 256, 300).col_range(128, 128);
  const View placed = arena.place(slice);
  ASSERT_NE(placed.data, slice.data);
  EXPECT_EQ(placed.stride, 128);
  for (const int64_t r : {0, 1, 255}) {
    EXPECT_EQ(std::memcmp(placed.row<f8_e4m3>(r), codes.data() + r * 300 + 128, 128), 0) << r;
  }
}

TEST(Arena, LeavesHostDataInPlaceWhereTheBackendReadsIt) {
  FarMemory memory(true);
  Arena arena(memory);
  std::vector<float> data(12);
  const Weight w{make_view(data.data(), DType::f32, 3, 4)};
  EXPECT_EQ(arena.place(w.data).data, data.data());
  EXPECT_EQ(arena.room_for(w).data.data, data.data());
  EXPECT_EQ(arena.place_array(data.data(), 12), data.data());
  EXPECT_EQ(memory.uploads, 0);
}

TEST(Arena, SharesAllocationsAndGivesThemBack) {
  FarMemory memory;
  {
    Arena arena(memory);
    std::byte* a = arena.take(100);
    std::byte* b = arena.take(1);
    EXPECT_EQ(b - a, 256);
    arena.take(int64_t{17} << 20);  // too large to share
    EXPECT_EQ(memory.allocations(), 2u);
  }
  EXPECT_EQ(memory.allocations(), 0u);
}

// Experts of the released model in a slab's fractions, each with block scales behind it: nothing is left open
// but the ends of two slabs.
TEST(Arena, FillsItsSlabs) {
  FarMemory memory;
  Arena arena(memory);
  int64_t taken = 0;
  for (const int64_t matrix : {kSlabBytes / 16, kSlabBytes / 4, kSlabBytes / 16}) {
    for (int i = 0; i < 40; ++i) {
      arena.take(matrix);
      arena.take(512);
      taken += matrix + 512;
    }
  }
  EXPECT_LE(static_cast<int64_t>(memory.allocations()), taken / kSlabBytes + 2);
}

schedule::StepPlan plan_of_two() {
  schedule::StepPlan plan;
  plan.decode_sequences = 1;
  plan.sequences.resize(2);
  plan.sequences[0].rows = {.first = 70, .row = 0, .rows = 1, .slot = 3, .page_offset = 0};
  plan.sequences[0].pages = 2;
  plan.sequences[0].sampled_rows = 1;
  plan.sequences[1].rows = {
      .first = 0, .row = 1, .rows = 4, .slot = 1, .page_offset = 4, .kind = kernels::RowKind::prefill};
  plan.sequences[1].pages = 1;
  plan.sequences[1].sampled_rows = 2;
  plan.ids = {kernels::kFromSlot, 5, 6, 7, 8};
  plan.pages = {9, 4, 77, 77, 2, 77};  // a place of four for each slot
  plan.samples.resize(3);
  plan.samples[2].seed = 77;
  plan.bias_ids = {11, 12};
  plan.bias_values = {0.5f, -0.5f};
  return plan;
}

// Pairs of a draft: a part of the rows of the step before, found by slot and position.
TEST(StepArrays, FollowingRowsKnowWhereTheyWere) {
  kernels::StepLimits limits;
  limits.rows = 5;
  limits.sequences = 2;
  limits.context = 128;
  limits.sampled_rows = 3;
  limits.pending_rows = 6;
  const schedule::StepPlan before = plan_of_two();
  schedule::StepPlan plan = before;
  plan.sequences[1].rows.first = 1;  // two of its four rows
  plan.sequences[1].rows.rows = 2;
  plan.sequences[1].sampled_rows = 1;
  plan.ids.resize(3);
  plan.samples.resize(2);
  std::swap(plan.sequences[0], plan.sequences[1]);
  plan.sequences[0].rows.row = 0;
  plan.sequences[1].rows.row = 2;
  for (const bool addressable : {false, true}) {
    FarMemory memory(addressable);
    Arena arena(memory);
    StepArrays arrays(arena, limits);
    arrays.set(before);
    arrays.follow(plan);
    EXPECT_EQ(std::vector<int32_t>(arrays.sources, arrays.sources + 3), (std::vector<int32_t>{2, 3, 0}));
    EXPECT_EQ(memory.uploads, addressable ? 0 : 2);
  }
}

TEST(StepArrays, OneUploadCarriesTheWholeStep) {
  kernels::StepLimits limits;
  limits.rows = 5;
  limits.sequences = 2;
  limits.context = 128;
  limits.sampled_rows = 3;
  const schedule::StepPlan plan = plan_of_two();
  for (const bool addressable : {false, true}) {
    FarMemory memory(addressable);
    Arena arena(memory);
    StepArrays arrays(arena, limits);
    arrays.set(plan);
    EXPECT_EQ(memory.uploads, addressable ? 0 : 1);
    EXPECT_EQ(arrays.view.rows, 5);
    EXPECT_EQ(arrays.view.decode_rows, 1);
    EXPECT_EQ(arrays.view.sequences, 2);
    EXPECT_EQ(arrays.view.sequence[1].slot, 1);
    EXPECT_EQ(std::vector<int32_t>(arrays.view.row_sequence, arrays.view.row_sequence + 5),
              (std::vector<int32_t>{0, 1, 1, 1, 1}));
    EXPECT_EQ(std::vector<int32_t>(arrays.view.ids, arrays.view.ids + 5), plan.ids);
    for (const auto& [sequence, page, expected] : {std::tuple(0, 0, 9), {0, 1, 4}, {1, 0, 2}})
      EXPECT_EQ(arrays.view.pages[arrays.view.sequence[sequence].page_offset + page], expected);
    // A device gets what the step uses, and the page of padded rows.
    EXPECT_EQ(arrays.view.sequence[1].page_offset, addressable ? 4 : 2);
    EXPECT_EQ(arrays.sampled, 3);
    EXPECT_EQ(std::vector<int32_t>(arrays.sampled_rows, arrays.sampled_rows + 3),
              (std::vector<int32_t>{0, 3, 4}));
    EXPECT_EQ(arrays.samples[2].seed, 77u);
    EXPECT_EQ(arrays.bias_ids[1], 12);
    EXPECT_EQ(arrays.bias_values[1], -0.5f);
    EXPECT_EQ(arrays.view.ids == plan.ids.data(), addressable);
  }
}

TEST(StepArrays, PaddedRowsLieInTheReservedSlotAndPage) {
  kernels::StepLimits limits;
  limits.rows = 8;
  limits.sequences = 4;
  limits.context = 128;
  limits.sampled_rows = 4;
  schedule::StepPlan plan = plan_of_two();
  plan.sequences.pop_back();
  plan.ids = {kernels::kFromSlot};
  plan.samples.resize(1);
  FarMemory memory(false);
  Arena arena(memory);
  StepArrays arrays(arena, limits);
  arrays.set(plan, 3);
  EXPECT_EQ(arrays.view.rows, 3);
  EXPECT_EQ(arrays.view.decode_rows, 3);
  EXPECT_EQ(arrays.view.decode_sequences, 3);
  EXPECT_EQ(arrays.sampled, 3);
  for (int32_t row = 1; row < 3; ++row) {
    const kernels::Sequence& s = arrays.view.sequence[arrays.view.row_sequence[row]];
    EXPECT_EQ(s.row, row);
    EXPECT_EQ(s.rows, 1);
    EXPECT_EQ(s.first, 0);
    EXPECT_EQ(s.slot, 0);
    EXPECT_EQ(arrays.view.pages[s.page_offset], 0);
    EXPECT_EQ(arrays.view.ids[row], 0);
    EXPECT_EQ(arrays.sampled_rows[row], row);
    EXPECT_EQ(arrays.samples[row].slot, kernels::kNoSlot);
  }
  // The addresses depend on the number of rows alone: what was recorded finds other requests there.
  const auto* samples = arrays.samples;
  plan.sequences[0].pages = 1;
  plan.bias_ids.clear();
  plan.bias_values.clear();
  arrays.set(plan, 3);
  EXPECT_EQ(arrays.samples, samples);
}

}  // namespace
}  // namespace godwit::model
