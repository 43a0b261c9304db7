// The rules of docs/scheduling.md, one by one, with their bounds.
#include <gtest/gtest.h>

#include "joining.h"
#include "world.h"

namespace godwit::simulator {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

schedule::ScheduleLimits limits() {
  return {.context = 1 << 20, .max_sequences = 8, .max_waiting = 100, .prefill_tokens = 1024};
}

// Prompt rows that each request got in the planned step.
std::map<uint64_t, int64_t> prompt_rows(const schedule::StepPlan& plan) {
  std::map<uint64_t, int64_t> rows;
  for (const auto& p : plan.sequences)
    if (p.rows.kind == kernels::RowKind::prefill) rows[p.request] += p.rows.rows;
  return rows;
}

TEST(Sharing, AShortPromptDoesNotWaitForALongOne) {
  World w(limits(), 20'000);
  std::mt19937 random(1);
  const uint64_t large = w.add(w.make(random_prompt(random, 1'000'000), 1));
  w.step();
  for (int i = 0; i < 20; ++i) {
    const uint64_t small = w.add(w.make(random_prompt(random, 2000), 1));
    int64_t steps = 0;
    for (; !w.ended.contains(small); ++steps) w.step();
    EXPECT_LE(steps, 2000 / 512 + 2) << "half of every step's 1,024 rows belong to the shortest prompt";
  }
  EXPECT_FALSE(w.ended.contains(large));
}

TEST(Sharing, ALongPromptDoesNotWaitForAStreamOfShortOnes) {
  World w(limits(), 20'000);
  std::mt19937 random(2);
  const uint64_t large = w.add(w.make(random_prompt(random, 300'000), 1));
  int64_t steps = 0;
  for (; !w.ended.contains(large); ++steps) {
    while (w.scheduler().running() + w.scheduler().waiting() < 6)
      w.add(w.make(random_prompt(random, 3000), 1));
    w.step();
    ASSERT_LE(steps, 300'000 / 512 + 4) << "the first in the order gets at least half of the rows";
  }
  EXPECT_GT(steps, 300'000 / 1024) << "nobody shared with it: the test lost its subject";
}

TEST(Sharing, TheMiddleOneIsServedOnceItIsFirstOrShortest) {
  World w(limits(), 20'000);
  std::mt19937 random(3);
  w.add(w.make(random_prompt(random, 100'000), 1));
  const uint64_t middle = w.add(w.make(random_prompt(random, 50'000), 1));
  int64_t steps = 0;
  for (; !w.ended.contains(middle); ++steps) {
    while (w.scheduler().running() + w.scheduler().waiting() < 6)
      w.add(w.make(random_prompt(random, 3000), 1));
    w.step();
    ASSERT_LE(steps, (100'000 + 50'000) / 512 + 8) << "what is before it and itself, at half speed";
  }
}

TEST(Sharing, ABudgetOfOnePageGoesToBothInTurns) {
  schedule::ScheduleLimits l = limits();
  l.prefill_tokens = 64;
  World w(l, 20'000);
  std::mt19937 random(4);
  const uint64_t a = w.add(w.make(random_prompt(random, 6400), 1));
  const uint64_t b = w.add(w.make(random_prompt(random, 3200), 1));
  std::map<uint64_t, int64_t> rows;
  for (int i = 0; i < 20; ++i) {
    w.step();
    for (const auto& [request, n] : prompt_rows(w.plan())) rows[request] += n;
  }
  EXPECT_EQ(rows[a], 640);
  EXPECT_EQ(rows[b], 640);
}

TEST(Priority, IsAHeadStartAndNoMore) {
  schedule::ScheduleLimits l = limits();
  l.max_sequences = 1;
  World w(l, 256);
  w.cost = [](const schedule::StepPlan&) { return kSecond / 10; };
  std::mt19937 random(5);
  w.add(w.make(random_prompt(random, 10), 5));
  w.step();
  auto low = w.make(random_prompt(random, 10), 5);
  low->priority = 2;
  const int64_t submitted = w.clock().now_ns();
  const uint64_t waits = w.add(std::move(low));
  int overtaken = 0;
  while (!w.ended.contains(waits)) {
    if (w.scheduler().waiting() < 3) w.add(w.make(random_prompt(random, 10), 5));
    w.step();
    overtaken += !w.admitted.contains(waits);
    ASSERT_LE(w.clock().now_ns() - submitted, 13 * kSecond) << "two levels are worth ten seconds, not more";
  }
  EXPECT_GT(overtaken, 90) << "nobody overtook it: the priority did nothing";
}

TEST(Priority, LevelsBeyondTheOutermostCountAsTheOutermost) {
  World w(limits(), 256);
  auto s = w.make({1, 2, 3}, 1);
  s->priority = INT32_MAX;
  w.add(std::move(s));
  w.scheduler().for_each([](schedule::Sequence& q) {
    EXPECT_EQ(q.rank, schedule::kOutermostPriority * schedule::kPriorityHeadStartNs);
  });
}

TEST(Preemption, TakesFromTheLastInTheOrderAndNeverFromTheFirst) {
  schedule::ScheduleLimits l = limits();
  l.context = 16384;
  World w(l, 150);
  std::mt19937 random(6);
  auto late = w.make(random_prompt(random, 200), 6000);
  late->priority = 1;  // submitted first, and still the one that gives
  const uint64_t gives = w.add(std::move(late));
  const uint64_t keeps = w.add(w.make(random_prompt(random, 200), 6000));
  int64_t most = 0;
  while (!w.ended.contains(keeps)) {
    w.step();
    w.scheduler().for_each([&](schedule::Sequence& s) {
      if (s.number == keeps) most = std::max<int64_t>(most, s.preemptions);
    });
  }
  EXPECT_EQ(most, 0);
  EXPECT_FALSE(w.ended.contains(gives));
  w.run();
  EXPECT_GT(w.admissions, 2) << "nothing was preempted: the test lost its subject";
}

// Tight pools of many sizes: whoever came back after a preemption runs for a whole growth step (4,096 tokens)
// before it can have to go again, so that no more is recomputed than was worth coming back for.
TEST(Preemption, WhoComesBackStaysForAGrowthStep) {
  int64_t preemptions = 0;
  for (const int32_t pages : {230, 300, 380, 520, 1000, 1250, 1500, 1750}) {
    schedule::ScheduleLimits l = limits();
    l.context = 14'000;
    if (pages >= 1000) l.max_sequences = 24;
    World w(l, pages);
    std::mt19937 random(static_cast<uint32_t>(pages));
    for (int i = 0; i < 36; ++i)
      w.add(w.make(random_prompt(random, 50 + static_cast<int64_t>(random() % 900)),
                   1000 + static_cast<int64_t>(random() % 11'000)));
    struct Seen {
      int32_t preemptions = 0;
      int64_t back_at = -1;  // step of its last readmission
    };
    std::map<uint64_t, Seen> seen;
    for (int64_t step = 0; !w.scheduler().idle(); ++step) {
      ASSERT_LT(step, 400'000) << "livelock with " << pages << " pages";
      w.step();
      w.scheduler().for_each([&](schedule::Sequence& s) {
        Seen& was = seen[s.number];
        if (s.preemptions > was.preemptions) {
          ++preemptions;
          if (was.back_at >= 0) {
            EXPECT_GE(step - was.back_at, 4000) << "request " << s.number << ", " << pages << " pages";
          }
          was = {s.preemptions, -1};
        }
        if (s.lease.held() && s.preemptions > 0 && was.back_at < 0) was.back_at = step;
      });
    }
    EXPECT_EQ(w.ended.size(), 36u);
    for (const auto& [number, e] : w.ended) ASSERT_TRUE(World::as_alone(e, number)) << "request " << number;
  }
  EXPECT_GT(preemptions, 20) << "hardly anything was preempted: the test lost its subject";
}

TEST(PageTables, FollowGrowthAndSharedBlocks) {
  // Two requests with one prompt: the second's pages are exchanged for the first's block by block, while the
  // plan keeps their tables from step to step.
  World w(limits(), 2000, {}, 64);
  std::mt19937 random(7);
  const auto prompt = random_prompt(random, 10'000);
  const uint64_t a = w.add(w.make(prompt, 5000)), b = w.add(w.make(prompt, 5000));
  bool shared = false;
  while (!w.scheduler().idle()) {
    w.step();
    w.scheduler().for_each([&](schedule::Sequence& s) {
      if (!s.lease.held()) return;
      shared |= s.number == b && s.lease.shared > 0;
      const auto table = w.plan().pages.begin() + s.lease.slot * w.plan().table_stride;
      for (int32_t i = 0; i < s.lease.in_table; ++i)
        ASSERT_EQ(table[i], s.lease.pages[static_cast<size_t>(i)]);
    });
  }
  EXPECT_TRUE(shared);
  EXPECT_TRUE(World::as_alone(w.ended[a], a));
  EXPECT_TRUE(World::as_alone(w.ended[b], b));
}

// Design §13, by the step-cost table of the expected kernels.
TEST(Target, SixteenStreamsWhileLongPromptsJoin) {
  JoiningOptions o;
  o.prompts = 4;
  const JoiningReport r = join(o);
  EXPECT_LE(r.ratio(), 4.0);
  EXPECT_GE(r.prompt_tokens_per_second, 35'000);
}

// Prompts that come back from the host are 1.7 GB each: no stream notices more than of a prompt that joins.
TEST(Target, SixteenStreamsWhileLongPromptsComeBack) {
  JoiningOptions o;
  o.prompts = 6;
  const RestoringReport r = restore(o);
  EXPECT_GE(r.restores, o.prompts);
  EXPECT_LE(r.longest_ms, 1.1 * static_cast<double>(o.itl_target_ns) / 1e6);
}

// A prompt whose log probabilities are asked for costs six times as much a row: no stream pays for that.
TEST(Target, AScoredPromptCountsForWhatItCosts) {
  schedule::ScheduleLimits l = limits();
  l.prefill_tokens = 16384;
  World w(l, 20'000);
  const StepCosts costs{.scored_us = 60};
  w.cost = [&](const schedule::StepPlan& plan) { return costs.ns(plan); };
  std::mt19937 random(8);
  for (int i = 0; i < 4; ++i) w.add(w.make(random_prompt(random, 1000), 5000));
  while (w.plan().decode_sequences < 4) w.step();
  const uint64_t plain = w.add(w.make(random_prompt(random, 100'000), 1));  // large slices are usual by now
  while (!w.ended.contains(plain)) w.step();
  for (const bool beside_plain : {false, true}) {
    if (beside_plain) w.add(w.make(random_prompt(random, 200'000), 1));
    auto s = w.make(random_prompt(random, 8192), 1);
    s->scored = true;
    s->room = 1 << 20;
    const uint64_t scored = w.add(std::move(s));
    int64_t longest = 0, steps = 0;
    for (; !w.ended.contains(scored); ++steps) {
      const int64_t from = w.clock().now_ns();
      w.step();
      longest = std::max(longest, w.clock().now_ns() - from);
    }
    EXPECT_LE(longest, l.itl_target_ns * 11 / 10);
    EXPECT_LE(steps, 8192 / 64) << "a page a step is what it gets at the least";
  }
}

// The target cannot be met: no slice is small enough. Prompts still move, and streams lose little.
TEST(Target, AnImpossibleTargetStarvesNeitherSide) {
  JoiningOptions o;
  o.prompts = 2;
  o.itl_target_ns = 5'000'000;
  const JoiningReport r = join(o);
  const double smallest = StepCosts::decode_ms(16) + o.costs.prompt_ms(64);
  EXPECT_LE(r.p99_ms, 1.4 * smallest);
  EXPECT_GE(r.prompt_tokens_per_second, 20'000);
}

}  // namespace
}  // namespace godwit::simulator
