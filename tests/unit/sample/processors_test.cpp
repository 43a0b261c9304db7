#include "sample/processors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace godwit::sample {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Processors, BiasThenPenaltiesThenMask) {
  std::vector<float> logits = {2, -2, 1, 4, 3, 0};
  SamplingRow row;
  row.bias_count = 2;
  row.repetition_penalty = 2;
  row.presence_penalty = 0.5f;
  row.frequency_penalty = 0.25f;
  const int32_t bias_ids[] = {0, 5};
  const float bias_values[] = {2, -100};
  //                         prompt only, output twice, both,          none …
  const int32_t history[] = {kInPrompt, 2, kInPrompt | 1, 0, 0, 0};
  const uint32_t mask[] = {0b110111};
  const uint32_t banned[] = {0b010000};
  RowContext context;
  context.bias_ids = bias_ids;
  context.bias_values = bias_values;
  context.history = history;
  context.mask = mask;
  context.banned = banned;
  ASSERT_TRUE(process_logits(logits.data(), 6, row, context));
  EXPECT_EQ(logits[0], (2 + 2) / 2.0f);          // biased first, then repetition; never output
  EXPECT_EQ(logits[1], -2 * 2 - (0.5f + 0.5f));  // towards less likely below zero, counted twice
  EXPECT_EQ(logits[2], 1 / 2.0f - (0.5f + 0.25f));
  EXPECT_EQ(logits[3], -kInf);  // not in the grammar mask
  EXPECT_EQ(logits[4], -kInf);  // has no token
  EXPECT_EQ(logits[5], -100);
}

TEST(Processors, StopIdsOnlyWhenSuppressed) {
  const int32_t stops[] = {1, 2};
  RowContext context;
  context.stop_ids = stops;
  context.stop_count = 2;
  SamplingRow row;
  std::vector<float> logits = {1, 2, 3};
  ASSERT_TRUE(process_logits(logits.data(), 3, row, context));
  EXPECT_EQ(logits, (std::vector<float>{1, 2, 3}));
  row.stop_suppressed = 1;
  ASSERT_TRUE(process_logits(logits.data(), 3, row, context));
  EXPECT_EQ(logits, (std::vector<float>{1, -kInf, -kInf}));
}

TEST(Processors, MasksReachTheLastWord) {
  std::vector<float> logits(67, 0.0f);
  const uint32_t mask[] = {0, 0, 0b100};  // only id 66
  RowContext context;
  context.mask = mask;
  ASSERT_TRUE(process_logits(logits.data(), 67, {}, context));
  for (int i = 0; i < 66; ++i) EXPECT_EQ(logits[static_cast<size_t>(i)], -kInf);
  EXPECT_EQ(logits[66], 0.0f);
}

TEST(Processors, RefusesRowsWithoutADistribution) {
  for (const float bad : {std::nanf(""), kInf}) {
    std::vector<float> logits = {1, bad, 2};
    EXPECT_FALSE(process_logits(logits.data(), 3, {}, {}));
    const uint32_t hides_it[] = {0b101};
    RowContext context;
    context.mask = hides_it;
    EXPECT_FALSE(process_logits(logits.data(), 3, {}, context)) << "a mask must not hide it";
  }
  std::vector<float> nothing = {-kInf, -kInf};
  EXPECT_FALSE(process_logits(nothing.data(), 2, {}, {}));
  std::vector<float> masked = {1, 2};
  const uint32_t none[] = {0};
  RowContext context;
  context.mask = none;
  EXPECT_FALSE(process_logits(masked.data(), 2, {}, context));
  std::vector<float> one_left = {-kInf, -5};
  EXPECT_TRUE(process_logits(one_left.data(), 2, {}, {}));
}

}  // namespace
}  // namespace godwit::sample
