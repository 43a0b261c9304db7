#include "sample/philox.h"

#include <gtest/gtest.h>

namespace godwit::sample {
namespace {

using Words = std::array<uint32_t, 4>;

// The published known answers of the Random123 distribution.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32_10({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformTakesTheUpper53Bits) {
  const SamplingRow row;  // all keys zero
  EXPECT_EQ(uniform(row), static_cast<double>(0x6627e8d5e169c58dull >> 11) * 0x1p-53);
}

TEST(Philox, EveryKeyChangesTheNumber) {
  SamplingRow row;
  row.seed = 7;
  row.position = 5;
  const double base = uniform(row);
  const auto changed = [&](auto change) {
    SamplingRow other = row;
    change(other);
    return uniform(other) != base;
  };
  EXPECT_TRUE(changed([](SamplingRow& r) { r.seed ^= 1; }));
  EXPECT_TRUE(changed([](SamplingRow& r) { r.seed ^= uint64_t{1} << 63; }));
  EXPECT_TRUE(changed([](SamplingRow& r) { r.position += 1; }));
  EXPECT_TRUE(changed([](SamplingRow& r) { r.position += int64_t{1} << 32; }));
  EXPECT_TRUE(changed([](SamplingRow& r) { r.prompt_index = 1; }));
  EXPECT_TRUE(changed([](SamplingRow& r) { r.choice_index = 1; }));
  EXPECT_FALSE(changed([](SamplingRow& r) { r.slot = 9; }));  // where it runs is no key
}

}  // namespace
}  // namespace godwit::sample
