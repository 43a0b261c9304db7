// Damaged values are found wherever they are, and nothing sound is taken for damage.
#include "weights/finite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "tensor/dtype.h"

namespace godwit {
namespace {

constexpr int64_t kCount = 10'000;  // more than two runs of the search

TensorRef ref(DType dtype, const std::byte* data) {
  return {dtype, {kCount}, data, static_cast<uint64_t>(kCount * size_of(dtype)), 1000, "part.safetensors"};
}

template <class Word>
void expect_found(DType dtype, const std::vector<Word>& sound, const std::vector<Word>& damaged) {
  std::vector<std::byte> bytes(kCount * sizeof(Word) + 1);
  std::byte* const data = bytes.data() + 1;  // a file may place data anywhere
  const auto put = [&](int64_t i, Word word) {
    std::memcpy(data + i * static_cast<int64_t>(sizeof word), &word, sizeof word);
  };
  for (int64_t i = 0; i < kCount; ++i) put(i, sound[static_cast<size_t>(i) % sound.size()]);
  EXPECT_TRUE(check_finite("a.weight", ref(dtype, data)).ok());
  for (const Word word : damaged) {
    for (const int64_t at : {int64_t{0}, int64_t{1}, int64_t{4095}, int64_t{4096}, kCount - 1}) {
      Word kept;
      std::memcpy(&kept, data + at * static_cast<int64_t>(sizeof kept), sizeof kept);
      put(at, word);
      const Result<void> checked = check_finite("a.weight", ref(dtype, data));
      put(at, kept);
      ASSERT_FALSE(checked.ok()) << word << " at " << at;
      EXPECT_EQ(checked.error().code, ErrorCode::data_refused);
      EXPECT_THAT(checked.error().message,
                  testing::AllOf(testing::HasSubstr("a.weight: element " + std::to_string(at) + " is"),
                                 testing::HasSubstr("part.safetensors at offset " +
                                                    std::to_string(1000 + at * size_of(dtype)))));
    }
  }
}

TEST(Finite, EveryDtypeThatCanHoldSomethingElse) {
  std::vector<uint8_t> codes;
  for (int code = 0; code < 256; ++code)
    if ((code & 0x7f) != 0x7f) codes.push_back(static_cast<uint8_t>(code));
  expect_found<uint8_t>(DType::f8_e4m3, codes, {0x7f, 0xff});
  expect_found<uint16_t>(DType::bf16, {0, 0x8000, 1, 0x7f7f, 0xff7f, 0x3f80},
                         {0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xffff});
  expect_found<uint32_t>(DType::f32, {0, 0x80000000, 1, 0x7f7fffff, 0xff7fffff, 0x3f800000},
                         {0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffffffff});
}

}  // namespace
}  // namespace godwit
