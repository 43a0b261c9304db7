#include "schedule/step_cost.h"

#include <gtest/gtest.h>

#include <functional>

namespace godwit::schedule {
namespace {

constexpr int64_t kMs = 1'000'000;

// Lets the model choose slices for `steps` steps beside `decode_rows`; the rows of the last one.
int64_t settle(StepCost& cost, int64_t decode_rows, int steps,
               const std::function<int64_t(int64_t)>& prompt_ns, int64_t decode_ns) {
  int64_t rows = 0;
  for (int i = 0; i < steps; ++i) {
    rows = cost.prompt_rows(decode_rows);
    cost.observe({decode_rows, rows}, decode_ns + (rows > 0 ? prompt_ns(rows) : 0));
  }
  return rows;
}

TEST(CostCurve, GoesThroughWhatWasMeasured) {
  CostCurve c(64);
  EXPECT_FALSE(c.known(100));
  EXPECT_EQ(c.at(100), 0);
  c.learn(100, 10);
  c.learn(1000, 100);
  EXPECT_TRUE(c.known(127));
  EXPECT_FALSE(c.known(128));
  EXPECT_DOUBLE_EQ(c.at(100), 10);
  EXPECT_DOUBLE_EQ(c.at(50), 5);
  EXPECT_DOUBLE_EQ(c.at(550), 55);
  EXPECT_DOUBLE_EQ(c.at(5000), 100);
  EXPECT_DOUBLE_EQ(c.reach(55), 550);
  EXPECT_DOUBLE_EQ(c.reach(5), 50);
  EXPECT_DOUBLE_EQ(c.reach(500), 2000) << "the next octave is tried in steps";
}

TEST(StepCost, AStepThatNobodyWaitsForTakesAllItMay) {
  StepCost cost(30 * kMs, 16384);
  EXPECT_EQ(cost.prompt_rows(0), 16384);
}

TEST(StepCost, ANewNumberOfStreamsIsMeasuredOnceWithoutPrompts) {
  StepCost cost(30 * kMs, 16384);
  EXPECT_EQ(cost.prompt_rows(5), 0);
  cost.observe({5, 0}, 4 * kMs);
  EXPECT_GE(cost.prompt_rows(5), 64);
  EXPECT_GE(cost.prompt_rows(7), 64) << "the same octave";
  EXPECT_EQ(cost.prompt_rows(8), 0);
}

TEST(StepCost, SettlesBelowTheTarget) {
  StepCost cost(30 * kMs, 16384);
  const auto prompt = [](int64_t rows) { return 2 * kMs + rows * 12'000; };
  const int64_t rows = settle(cost, 16, 60, prompt, 8 * kMs);
  EXPECT_LE(8 * kMs + prompt(rows), 30 * kMs);
  EXPECT_GE(8 * kMs + prompt(rows), 26 * kMs);
  EXPECT_EQ(rows % 64, 0);
}

TEST(StepCost, GrowsFromSmallSlicesWhoseCostIsFlat) {
  StepCost cost(30 * kMs, 16384);
  const auto prompt = [](int64_t rows) { return std::max(18 * kMs, 8 * kMs + rows * 12'000); };
  cost.observe({16, 0}, 8 * kMs);
  for (int i = 0; i < 100; ++i) cost.observe({16, 64}, 8 * kMs + prompt(64));  // only short prompts so far
  EXPECT_GE(settle(cost, 16, 60, prompt, 8 * kMs), 896);
}

TEST(StepCost, FollowsACostThatGrowsWithTheContext) {
  StepCost cost(30 * kMs, 16384);
  for (int64_t per_row = 12'000; per_row < 24'000; per_row += 50) {
    const int64_t rows = settle(
        cost, 16, 5, [&](int64_t n) { return n * per_row; }, 8 * kMs);
    EXPECT_LE(8 * kMs + rows * per_row, 31 * kMs) << per_row;
  }
}

TEST(StepCost, OneStepThatHungChangesLittle) {
  StepCost cost(30 * kMs, 16384);
  const auto prompt = [](int64_t rows) { return 2 * kMs + rows * 12'000; };
  const int64_t before = settle(cost, 16, 60, prompt, 8 * kMs);
  cost.observe({16, before}, 5000 * kMs);
  EXPECT_GE(cost.prompt_rows(16), before / 2);
  EXPECT_GE(settle(cost, 16, 30, prompt, 8 * kMs), before * 9 / 10);
}

TEST(StepCost, WhereNoSliceFitsPromptsStillGetAFifth) {
  StepCost cost(10 * kMs, 16384);
  const auto prompt = [](int64_t rows) { return 4 * kMs + rows * 12'000; };
  const int64_t rows = settle(cost, 64, 80, prompt, 20 * kMs);
  EXPECT_GT(rows, 64);
  EXPECT_LE(20 * kMs + prompt(rows), 12 * (20 * kMs + prompt(64)) / 10);
}

TEST(StepCost, ScoredRowsCountForWhatTheyCost) {
  StepCost cost(30 * kMs, 16384);
  const auto prompt = [](int64_t rows) { return 2 * kMs + rows * 12'000; };
  const auto scored = [&](int64_t rows) { return prompt(rows) + rows * 60'000; };
  const int64_t plain = settle(cost, 16, 60, prompt, 8 * kMs);
  EXPECT_EQ(cost.scored_rows(16), 64) << "nothing is known of them";
  for (int i = 0; i < 60; ++i) {
    const int64_t rows = cost.scored_rows(16);
    EXPECT_LE(8 * kMs + scored(rows), 30 * kMs);
    cost.observe({16, rows, rows}, 8 * kMs + scored(rows));
  }
  EXPECT_GE(8 * kMs + scored(cost.scored_rows(16)), 24 * kMs) << "they get what there is";
  EXPECT_EQ(cost.prompt_rows(16), plain) << "plain ones are not blamed for it";
}

TEST(StepCost, ScoredRowsAloneAreLearnedToo) {
  StepCost cost(30 * kMs, 16384);
  cost.observe({4, 0}, kMs);
  for (int i = 0; i < 60; ++i) {
    const int64_t rows = cost.scored_rows(4);
    cost.observe({4, rows, rows}, kMs + rows * 20'000);
  }
  EXPECT_GE(cost.scored_rows(4), 1024);
}

TEST(StepCost, CopiesTakeAQuarterAndPromptsGetTheRest) {
  StepCost cost(30 * kMs, 16384);
  const auto prompt = [](int64_t rows) { return 2 * kMs + rows * 12'000; };
  const int64_t without = settle(cost, 16, 60, prompt, 8 * kMs);
  EXPECT_EQ(cost.copy_bytes(16), 0) << "nothing was measured";
  cost.observe_copies(1000, 100);
  const int64_t bytes = cost.copy_bytes(16);
  EXPECT_EQ(bytes, 30 * kMs / 4 * 10);
  const int64_t beside = cost.prompt_rows(16, bytes);
  EXPECT_LE(8 * kMs + prompt(beside) + 30 * kMs / 4, 30 * kMs);
  EXPECT_LT(beside, without);
  for (int i = 0; i < 60; ++i) cost.observe_copies(1'000'000, 1'000'000);
  EXPECT_NEAR(static_cast<double>(cost.copy_bytes(16)), 30e6 / 4, 30e6 / 400) << "slower than it was";
  cost.observe({64, 0}, 29 * kMs);
  EXPECT_LT(cost.copy_bytes(64), bytes) << "decode rows come first";
}

TEST(StepCost, StepsWithoutRowsTeachNothing) {
  StepCost cost(30 * kMs, 16384);
  cost.observe({0, 0}, 8 * kMs);
  EXPECT_EQ(cost.prompt_rows(1), 0);
  const auto prompt = [](int64_t rows) { return 2 * kMs + rows * 12'000; };
  EXPECT_GE(settle(cost, 16, 60, prompt, 8 * kMs), 1024);
}

TEST(StepCost, IsBoundedByTheEnginesLimit) {
  StepCost cost(1'000'000 * kMs, 256);
  EXPECT_EQ(settle(
                cost, 4, 60, [](int64_t rows) { return rows; }, kMs),
            256);
}

}  // namespace
}  // namespace godwit::schedule
