// The real schedule and cache under a virtual clock.
#include <gtest/gtest.h>

#include "world.h"

namespace godwit::simulator {
namespace {

using schedule::FinishReason;

schedule::ScheduleLimits small_limits() {
  return {.context = 2048, .max_sequences = 4, .max_waiting = 100, .prefill_tokens = 128, .forced_rows = 16};
}

TEST(Scheduler, OneRequestGetsItsTokens) {
  World w(small_limits(), 64);
  std::mt19937 random(1);
  const uint64_t a = w.add(w.make(random_prompt(random, 300), 50));
  w.run();
  ASSERT_EQ(w.ended.size(), 1u);
  EXPECT_EQ(w.ended[a].reason, FinishReason::length);
  EXPECT_EQ(w.ended[a].tokens.size(), 350u);
  EXPECT_TRUE(World::as_alone(w.ended[a], a));
  EXPECT_EQ(w.cache().pages_used(), 0);
  EXPECT_EQ(w.cache().slots_used(), 0);
}

TEST(Scheduler, APrefillSliceNeverPassesTheBudgetAndDecodesNeverWait) {
  World w(small_limits(), 256);
  std::mt19937 random(2);
  const uint64_t a = w.add(w.make(random_prompt(random, 10), 100));
  w.step();
  w.add(w.make(random_prompt(random, 1500), 10));
  const int64_t before = w.tokens;
  for (int i = 0; i < 10; ++i) {
    w.step();
    EXPECT_EQ(w.plan().decode_sequences, 1) << "the running stream got no row in step " << i;
  }
  EXPECT_EQ(w.tokens - before, 10);
  EXPECT_LE(w.longest_prefill(), 128);
  w.run();
  EXPECT_TRUE(World::as_alone(w.ended[a], a));
}

TEST(Scheduler, CancelFreesEverythingWithinOneStep) {
  World w(small_limits(), 64);
  std::mt19937 random(3);
  w.add(w.make(random_prompt(random, 500), 1000));
  w.step();
  EXPECT_GT(w.cache().pages_used(), 0);
  w.scheduler().for_each([](schedule::Sequence& s) { s.cancelled = true; });
  w.step();
  ASSERT_EQ(w.ended.size(), 1u);
  EXPECT_EQ(w.ended.begin()->second.reason, FinishReason::cancelled);
  EXPECT_EQ(w.cache().pages_used(), 0);
  EXPECT_EQ(w.cache().slots_used(), 0);
}

TEST(Scheduler, AFullPoolPreemptsTheYoungestAndChangesNoToken) {
  // 97 pages each at their ends in a pool of 150: both are admitted, and one has to go before both are done.
  schedule::ScheduleLimits limits = small_limits();
  limits.context = 16384;
  World w(limits, 150);
  std::mt19937 random(4);
  const uint64_t a = w.add(w.make(random_prompt(random, 200), 6000));
  const uint64_t b = w.add(w.make(random_prompt(random, 200), 6000));
  w.run();
  ASSERT_EQ(w.ended.size(), 2u);
  EXPECT_GT(w.admissions, 2) << "nothing was preempted: the test lost its subject";
  for (uint64_t n : {a, b}) {
    EXPECT_EQ(w.ended[n].tokens.size(), 6200u);
    EXPECT_TRUE(World::as_alone(w.ended[n], n));
  }
  EXPECT_EQ(w.cache().pages_used(), 0);
}

TEST(Scheduler, AResumedRequestContinuesItsTokens) {
  World w(small_limits(), 64);
  std::mt19937 random(5);
  const std::vector<int32_t> prompt = random_prompt(random, 100);
  auto whole = w.make(prompt, 60);
  whole->sampling.seed = 7;
  const uint64_t a = w.add(std::move(whole));
  w.run();
  auto resumed = w.make(prompt, 60);
  resumed->sampling.seed = 7;
  for (int i = 0; i < 37; ++i) resumed->tokens.push_back(w.ended[a].tokens[100 + static_cast<size_t>(i)]);
  resumed->forced_end = 137;
  const uint64_t b = w.add(std::move(resumed));
  w.run();
  EXPECT_EQ(w.ended[b].tokens, w.ended[a].tokens);
}

TEST(Scheduler, StopIdsEndAndMinTokensHoldThemBack) {
  World probe(small_limits(), 64);
  std::mt19937 random(6);
  const std::vector<int32_t> prompt = random_prompt(random, 20);
  const uint64_t p = probe.add(probe.make(prompt, 10));
  probe.run();
  const int32_t fifth = probe.ended[p].tokens[24];
  World w(small_limits(), 64, {fifth});
  const uint64_t a = w.add(w.make(prompt, 10));
  w.run();
  EXPECT_EQ(w.ended[a].reason, FinishReason::stop);
  EXPECT_EQ(w.ended[a].tokens.size(), 25u);
  World ignoring(small_limits(), 64, {fifth});
  auto s = ignoring.make(prompt, 10);
  s->ignore_eos = true;
  const uint64_t b = ignoring.add(std::move(s));
  ignoring.run();
  EXPECT_EQ(ignoring.ended[b].tokens.size(), 30u);
}

TEST(Scheduler, PriorityGoesFirstAndTheLineIsBounded) {
  schedule::ScheduleLimits limits = small_limits();
  limits.max_sequences = 1;
  limits.max_waiting = 2;
  World w(limits, 64);
  std::mt19937 random(7);
  auto low = w.make(random_prompt(random, 10), 3);
  low->priority = 5;
  const uint64_t a = w.add(std::move(low));
  const uint64_t b = w.add(w.make(random_prompt(random, 10), 3));
  EXPECT_EQ(w.add(w.make(random_prompt(random, 10), 3)), 0u) << "the third should find the line full";
  w.step();
  EXPECT_EQ(w.plan().sequences.at(0).request, b);
  w.run();
  EXPECT_EQ(w.ended.size(), 2u);
  EXPECT_TRUE(w.ended.contains(a));
}

TEST(Scheduler, DeadlinesEndRunningAndWaitingRequests) {
  schedule::ScheduleLimits limits = small_limits();
  limits.max_sequences = 1;
  World w(limits, 64);
  std::mt19937 random(8);
  for (int i = 0; i < 2; ++i) {
    auto s = w.make(random_prompt(random, 10), 1000);
    s->deadline_ns = 20'000'000;
    w.add(std::move(s));
  }
  for (int i = 0; i < 30; ++i) w.step();
  ASSERT_EQ(w.ended.size(), 2u);
  for (const auto& [number, e] : w.ended) EXPECT_EQ(e.failure, schedule::Failure::deadline);
  EXPECT_EQ(w.cache().pages_used(), 0);
}

TEST(Scheduler, APausedSequenceKeepsItsPlaceAndGetsNoRow) {
  World w(small_limits(), 64);
  std::mt19937 random(9);
  const uint64_t a = w.add(w.make(random_prompt(random, 10), 20));
  w.step();
  w.scheduler().for_each([](schedule::Sequence& s) { s.paused = true; });
  EXPECT_FALSE(w.step());
  w.scheduler().for_each([](schedule::Sequence& s) { s.paused = false; });
  w.run();
  EXPECT_TRUE(World::as_alone(w.ended[a], a));
}

// Thousands of requests of every shape against a pool too small for them, with readers that stall and clients
// that leave.
TEST(Scheduler, RandomLoadLeaksNothingAndEveryRequestEndsAsAlone) {
  schedule::ScheduleLimits limits{
      .context = 8192, .max_sequences = 8, .max_waiting = 64, .prefill_tokens = 256, .forced_rows = 32};
  World w(limits, 160);
  std::mt19937 random(10);
  int64_t accepted = 0, cancelled = 0;
  for (int64_t step = 0; step < 30000; ++step) {
    if (random() % 24 == 0) {
      const int64_t prompt = 1 + static_cast<int64_t>(random() % (random() % 8 == 0 ? 3000 : 300));
      const int64_t most = 1 + static_cast<int64_t>(random() % (random() % 16 == 0 ? 5000 : 60));
      auto s = w.make(random_prompt(random, prompt), std::min(most, limits.context - prompt));
      s->priority = static_cast<int32_t>(random() % 3);
      accepted += w.add(std::move(s)) != 0;
    }
    w.scheduler().for_each([&](schedule::Sequence& s) {
      s.paused = random() % 10 == 0;
      if (random() % 5000 == 0 && !s.cancelled) {
        s.cancelled = true;
        ++cancelled;
      }
    });
    w.step();
    ASSERT_LE(w.cache().pages_used(), 160);
  }
  w.scheduler().for_each([](schedule::Sequence& s) { s.paused = false; });
  w.run();
  EXPECT_EQ(static_cast<int64_t>(w.ended.size()), accepted);
  EXPECT_GT(accepted, 500);
  EXPECT_GT(cancelled, 5);
  EXPECT_GT(w.admissions, accepted - cancelled)
      << "no preemption happened: the pool is too large for this test";
  EXPECT_EQ(w.cache().pages_used(), 0);
  EXPECT_EQ(w.cache().slots_used(), 0);
  for (const auto& [number, e] : w.ended) ASSERT_TRUE(World::as_alone(e, number)) << "request " << number;
}

}  // namespace
}  // namespace godwit::simulator
