// The hybrid prefix cache under the real schedule: a hit never changes a token, and every miss says why.
#include <gtest/gtest.h>

#include "world.h"

namespace godwit::simulator {
namespace {

using cache::MissReason;

schedule::ScheduleLimits limits() {
  return {.context = 8192,
          .max_sequences = 4,
          .max_waiting = 100,
          .prefill_tokens = 256,
          .forced_rows = 16,
          .snapshot_stride = 1024};
}

// Sends a prompt through an idle world.
uint64_t ask(World& w, std::vector<int32_t> prompt, int64_t most, uint64_t salt = 0) {
  const uint64_t number = w.add(w.make(std::move(prompt), most, salt));
  w.run();
  EXPECT_TRUE(World::as_alone(w.ended[number], number)) << "request " << number;
  return number;
}

TEST(PrefixCache, TheSamePromptHitsToItsLastBoundary) {
  World w(limits(), 256, {}, 16);
  std::mt19937 random(1);
  for (const int64_t length : {65, 128, 129, 1000, 3000}) {
    const auto prompt = random_prompt(random, length);
    const uint64_t cold = ask(w, prompt, 5);
    EXPECT_EQ(w.admitted[cold].cached, 0);
    const uint64_t warm = ask(w, prompt, 5);
    EXPECT_EQ(w.admitted[warm].cached, (length - 1) / 64 * 64) << length;
    EXPECT_EQ(w.admitted[warm].miss, MissReason::none);
  }
}

TEST(PrefixCache, TheNextTurnHitsEverythingTheLastPromptHad) {
  World w(limits(), 256, {}, 16);
  std::mt19937 random(2);
  std::vector<int32_t> history = random_prompt(random, 500);
  int64_t replayable = 0, cached = 0, last = 0;
  for (int turn = 0; turn < 8; ++turn) {
    const uint64_t n = ask(w, history, 40);
    if (turn > 0) {
      replayable += last / 64 * 64;
      cached += w.admitted[n].cached;
    }
    last = static_cast<int64_t>(history.size());
    history = w.ended[n].tokens;
    const auto user = random_prompt(random, 60);
    history.insert(history.end(), user.begin(), user.end());
  }
  EXPECT_EQ(cached, replayable);
}

TEST(PrefixCache, ABranchWithoutASnapshotMakesOneForTheNext) {
  World w(limits(), 256, {}, 16);
  std::mt19937 random(3);
  const auto trunk = random_prompt(random, 640);
  const auto with = [&](int64_t length) {
    auto p = trunk;
    const auto rest = random_prompt(random, length);
    p.insert(p.end(), rest.begin(), rest.end());
    return p;
  };
  ask(w, with(300), 3);
  const uint64_t second = ask(w, with(300), 3);
  EXPECT_EQ(w.admitted[second].cached, 0);
  EXPECT_EQ(w.admitted[second].miss, MissReason::no_snapshot);
  const uint64_t third = ask(w, with(300), 3);
  EXPECT_EQ(w.admitted[third].cached, 640);
  EXPECT_EQ(w.admitted[third].miss, MissReason::first_difference);
  EXPECT_GE(w.admitted[third].first_difference_at, 640);
}

TEST(PrefixCache, EveryMissSaysWhy) {
  World off(limits(), 256);
  std::mt19937 random(4);
  EXPECT_EQ(off.admitted[ask(off, random_prompt(random, 200), 2)].miss, MissReason::disabled);
  World w(limits(), 256, {}, 16);
  EXPECT_EQ(w.admitted[ask(w, random_prompt(random, 64), 2)].miss, MissReason::too_short);
  auto a = random_prompt(random, 200);
  ask(w, a, 2);
  a[100] = (a[100] + 1) % kVocabulary;
  const uint64_t changed = ask(w, a, 2);
  EXPECT_EQ(w.admitted[changed].miss, MissReason::no_snapshot) << "64 tokens match, the snapshot is at 192";
  const auto first = random_prompt(random, 200);
  ask(w, first, 2);
  auto other = first;
  other[10] = (other[10] + 1) % kVocabulary;
  const uint64_t early = ask(w, other, 2);
  EXPECT_EQ(w.admitted[early].miss, MissReason::first_difference);
  EXPECT_EQ(w.admitted[early].first_difference_at, 10);
  ask(w, random_prompt(random, 6000), 2);
  for (int i = 0; i < 5; ++i) ask(w, random_prompt(random, 6000), 2);  // pushes the first ones out
  EXPECT_EQ(w.admitted[ask(w, first, 2)].miss, MissReason::evicted);
}

TEST(PrefixCache, SaltsKeepTenantsApart) {
  World w(limits(), 256, {}, 16);
  std::mt19937 random(5);
  const auto prompt = random_prompt(random, 700);
  ask(w, prompt, 3, 1);
  EXPECT_EQ(w.admitted[ask(w, prompt, 3, 2)].cached, 0);
  EXPECT_EQ(w.admitted[ask(w, prompt, 3, 1)].cached, 640);
}

TEST(PrefixCache, FlushForgetsEverythingAndLeaksNothing) {
  World w(limits(), 256, {}, 16);
  std::mt19937 random(6);
  const auto prompt = random_prompt(random, 700);
  ask(w, prompt, 3);
  EXPECT_GT(w.cache().pages_cached(), 0);
  w.cache().flush();
  EXPECT_EQ(w.cache().pages_cached(), 0);
  EXPECT_EQ(w.cache().snapshots_used(), 0);
  EXPECT_EQ(w.admitted[ask(w, prompt, 3)].cached, 0);
}

TEST(PrefixCache, TwoRequestsWithOnePromptShareItsPages) {
  World w(limits(), 256, {}, 16);
  std::mt19937 random(7);
  const auto prompt = random_prompt(random, 1000);
  const uint64_t a = w.add(w.make(prompt, 200)), b = w.add(w.make(prompt, 200));
  for (int i = 0; i < 20; ++i) w.step();
  // 15 shared blocks, and each its own rest: the last 40 prompt tokens and up to 200 drawn ones.
  EXPECT_LE(w.cache().pages_used(), 15 + 2 * 4);
  w.run();
  EXPECT_TRUE(World::as_alone(w.ended[a], a));
  EXPECT_TRUE(World::as_alone(w.ended[b], b));
}

TEST(PrefixCache, WhatLeavesTheDeviceComesBackFromTheHost) {
  for (const bool at_once : {false, true}) {
    World w(limits(), 140, {}, 16, {.pages = 1000, .snapshots = 64});
    w.copies_are_free = at_once;
    std::mt19937 random(9);
    const auto prompt = random_prompt(random, 3000);
    ask(w, prompt, 3);
    ask(w, random_prompt(random, 6000), 3);
    ask(w, random_prompt(random, 6000), 3);  // pushes the first one out
    EXPECT_GT(w.model().moved_out, 40);
    const uint64_t back = ask(w, prompt, 3);
    EXPECT_EQ(w.admitted[back].cached, 2944);
    EXPECT_EQ(w.admitted[back].miss, MissReason::none);
    EXPECT_EQ(w.cache().host_hits(), 1u);
    EXPECT_EQ(w.model().moved_in, 46 + 1);
    // A longer prompt continues from the host.
    ask(w, random_prompt(random, 6000), 3);
    ask(w, random_prompt(random, 6000), 3);
    auto longer = prompt;
    const auto rest = random_prompt(random, 500);
    longer.insert(longer.end(), rest.begin(), rest.end());
    EXPECT_EQ(w.admitted[ask(w, longer, 3)].cached, 2944);
    w.cache().flush();
    EXPECT_EQ(w.cache().host_pages_used(), 0);
    EXPECT_EQ(w.cache().host_snapshots_used(), 0);
  }
}

TEST(PrefixCache, WhatCameBackFromTheHostStaysOnTheDevice) {
  World w(limits(), 140, {}, 16, {.pages = 1000, .snapshots = 64});
  std::mt19937 random(15);
  const auto prompt = random_prompt(random, 3000);
  ask(w, prompt, 3);
  ask(w, random_prompt(random, 6000), 3);
  ask(w, random_prompt(random, 6000), 3);
  ask(w, prompt, 3);
  ASSERT_EQ(w.cache().host_hits(), 1u);
  const int64_t moved = w.model().moved_in;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(w.admitted[ask(w, prompt, 3)].cached, 2944);
    auto next = prompt;  // another turn of the same history
    const auto rest = random_prompt(random, 200);
    next.insert(next.end(), rest.begin(), rest.end());
    EXPECT_EQ(w.admitted[ask(w, next, 3)].cached, 2944);
  }
  EXPECT_EQ(w.model().moved_in, moved) << "a prefix that had come back was copied again";
  EXPECT_EQ(w.cache().host_hits(), 1u);
  // Leaving once more costs nothing: the host has it.
  const int64_t out = w.model().moved_out;
  ask(w, random_prompt(random, 6000), 3);
  const int64_t of_others = w.model().moved_out - out;
  EXPECT_LE(of_others, 2 * 94 + 8) << "what the host has was copied to it again";
}

TEST(PrefixCache, ADamagedHostCopyIsComputedAgain) {
  World w(limits(), 140, {}, 16, {.pages = 1000, .snapshots = 64});
  std::mt19937 random(12);
  const auto prompt = random_prompt(random, 3000);
  ask(w, prompt, 3);
  ask(w, random_prompt(random, 6000), 3);
  ask(w, random_prompt(random, 6000), 3);
  w.model().damage_every = 20;
  const uint64_t back = ask(w, prompt, 3);  // as_alone() inside: the damage reaches no token
  EXPECT_EQ(w.cache().host_hits(), 1u);
  EXPECT_EQ(w.admitted[back].cached, 0) << "the second admission must not trust the host";
  EXPECT_EQ(w.cache().host_pages_used(), 0);
  EXPECT_EQ(w.cache().pages_used(), 0);
}

TEST(PrefixCache, ARequestThatMadeRoomContinuesFromTheHost) {
  // 97 pages each at their ends in a pool of 150: one has to go, and nothing of it is computed twice.
  schedule::ScheduleLimits l = limits();
  l.context = 16384;
  for (const int64_t damage : {0, 7}) {
    World w(l, 150, {}, 16, {.pages = 400, .snapshots = 16, .slots = 2});
    w.model().damage_every = damage;
    std::mt19937 random(13);
    const uint64_t a = w.add(w.make(random_prompt(random, 200), 6000));
    const uint64_t b = w.add(w.make(random_prompt(random, 200), 6000));
    int64_t rows = 0;
    while (!w.scheduler().idle()) {
      w.step();
      rows += w.plan().rows();
    }
    EXPECT_GE(w.model().swaps, damage == 0 ? 2 : 1);
    for (const uint64_t n : {a, b}) EXPECT_TRUE(World::as_alone(w.ended[n], n));
    if (damage == 0) {
      EXPECT_EQ(rows, 2 * (200 + 6000 - 1)) << "a row was computed twice";
    } else {
      EXPECT_GT(rows, 2 * (200 + 6000 - 1)) << "the damaged copy was used";
    }
    EXPECT_EQ(w.cache().pages_used(), 0);
    w.cache().flush();
    EXPECT_EQ(w.cache().host_pages_used(), 0);
    EXPECT_EQ(w.cache().host_slots_used(), 0);
  }
}

TEST(PrefixCache, ARequestCancelledOnTheHostLeavesNothingThere) {
  schedule::ScheduleLimits l = limits();
  l.context = 16384;
  World w(l, 150, {}, 16, {.pages = 400, .snapshots = 16, .slots = 2});
  std::mt19937 random(14);
  w.add(w.make(random_prompt(random, 200), 6000));
  w.add(w.make(random_prompt(random, 200), 6000));
  while (w.cache().host_slots_used() == 0) ASSERT_TRUE(w.step());
  w.scheduler().for_each([](schedule::Sequence& s) { s.cancelled = true; });
  w.run();
  EXPECT_EQ(w.ended.size(), 2u);
  EXPECT_EQ(w.cache().host_slots_used(), 0);
  EXPECT_EQ(w.cache().pages_used(), 0);
}

// Copies are far larger than what one step may make here, so that every test below has its subject: something
// in the middle of its way.
schedule::ScheduleLimits slow_copies() {
  schedule::ScheduleLimits l = limits();
  l.context = 16384;
  l.itl_target_ns = 1;  // a step copies two records at most
  return l;
}

TEST(SpreadCopies, AStepMakesNoMoreThanItMay) {
  World w(slow_copies(), 140, {}, 16, {.pages = 1000, .snapshots = 64});
  std::mt19937 random(16);
  const auto prompt = random_prompt(random, 3000);
  ask(w, prompt, 3);
  for (int i = 0; i < 3; ++i) ask(w, random_prompt(random, 8000), 3);
  const uint64_t back = w.add(w.make(prompt, 3));
  int64_t with_copies = 0;
  while (!w.ended.contains(back)) {
    w.step();
    int64_t bytes = 0;
    for (const cache::Move& m : w.plan().moves) bytes += StepCosts::kRecordBytes[static_cast<size_t>(m.what)];
    ASSERT_LE(bytes, 2 * StepCosts::kRecordBytes[2]);
    with_copies += bytes > 0;
  }
  EXPECT_EQ(w.cache().host_hits(), 1u);
  EXPECT_GT(with_copies, 1) << "all was copied at once: the test lost its subject";
  EXPECT_TRUE(World::as_alone(w.ended[back], back));
}

TEST(SpreadCopies, StreamsGoOnWhileAPrefixComesIn) {
  World w(slow_copies(), 400, {}, 16, {.pages = 1000, .snapshots = 64});
  std::mt19937 random(17);
  const auto prompt = random_prompt(random, 16'000);
  ask(w, prompt, 3);
  for (int i = 0; i < 3; ++i) ask(w, random_prompt(random, 16'000), 3);
  const uint64_t stream = w.add(w.make(random_prompt(random, 100), 3000));
  for (int i = 0; i < 10; ++i) w.step();
  const uint64_t back = w.add(w.make(prompt, 3));
  const int64_t before = w.tokens;
  int64_t steps = 0, loading = 0;
  for (; !w.ended.contains(back); ++steps) {
    w.step();
    w.scheduler().for_each([&](schedule::Sequence& s) { loading += s.number == back && s.lease.loading(); });
  }
  EXPECT_GT(loading, 1) << "all came at once: the test lost its subject";
  EXPECT_EQ(w.tokens - before, steps + 3) << "the stream missed a step";
  w.run();
  for (const uint64_t n : {stream, back}) EXPECT_TRUE(World::as_alone(w.ended[n], n));
}

TEST(SpreadCopies, ARequestCancelledOnItsWayLeavesNothing) {
  // In the middle of its way to the host, and of its way back.
  for (const bool back : {false, true}) {
    World w(slow_copies(), 150, {}, 16, {.pages = 400, .snapshots = 16, .slots = 2});
    std::mt19937 random(18);
    const uint64_t stays = w.add(w.make(random_prompt(random, 600), 6000));
    const uint64_t goes = w.add(w.make(random_prompt(random, 600), 6000));
    const auto find = [&](auto&& is_there) {
      bool found = false;
      w.scheduler().for_each([&](schedule::Sequence& s) {
        if (s.number != goes || !is_there(s)) return;
        found = s.cancelled = true;
      });
      return found;
    };
    const auto on_its_way = [&](const schedule::Sequence& s) {
      return back ? s.lease.loading() && s.lease.host_slot != cache::kNone
                  : s.lease.swapped() && w.cache().leaving();
    };
    while (!find(on_its_way)) {
      ASSERT_FALSE(w.scheduler().idle()) << "the test lost its subject";
      w.step();
    }
    const int64_t used = w.cache().pages_used();
    w.step();
    EXPECT_EQ(w.ended[goes].reason, schedule::FinishReason::cancelled);
    EXPECT_LE(w.cache().pages_used(), used);
    EXPECT_EQ(w.cache().host_slots_used(), 0);
    w.run();
    EXPECT_TRUE(World::as_alone(w.ended[stays], stays));
    EXPECT_TRUE(World::as_alone(w.ended[goes], goes));
    EXPECT_EQ(w.cache().pages_used(), 0);
    w.cache().flush();
    EXPECT_EQ(w.cache().pages_cached(), 0);
    EXPECT_EQ(w.cache().snapshots_used(), 0);
    EXPECT_EQ(w.cache().host_pages_used(), 0);
  }
}

TEST(SpreadCopies, AFlushInTheMiddleLosesNobody) {
  World w(slow_copies(), 140, {}, 16, {.pages = 1000, .snapshots = 64});
  std::mt19937 random(19);
  const auto prompt = random_prompt(random, 3000);
  int64_t flushed_leaving = 0, flushed_loading = 0;
  for (int round = 0; round < 30; ++round) {
    ask(w, prompt, 3);
    for (int i = 0; i < 2; ++i) ask(w, random_prompt(random, 8000), 3);
    w.add(w.make(prompt, 3));
    for (int i = 0; i < round; ++i) w.step();
    flushed_leaving += w.cache().leaving();
    w.scheduler().for_each([&](schedule::Sequence& s) { flushed_loading += s.lease.loading(); });
    w.cache().flush();
    w.run();
  }
  EXPECT_GT(flushed_leaving, 0);
  EXPECT_GT(flushed_loading, 0);
  for (const auto& [number, e] : w.ended) ASSERT_TRUE(World::as_alone(e, number)) << "request " << number;
  w.cache().flush();
  EXPECT_EQ(w.cache().pages_cached(), 0);
  EXPECT_EQ(w.cache().host_pages_used(), 0);
  EXPECT_EQ(w.cache().host_snapshots_used(), 0);
}

// Sessions that grow, branch and leave, in pools far too small for them: thousands of hits, evictions and
// preemptions, without a host tier, with one that is too small itself, and with one that holds everything.
class RandomSessions : public testing::TestWithParam<std::tuple<int32_t, cache::HostSizes>> {};

TEST_P(RandomSessions, InTinyPoolsGetTheTokensTheyGetAlone) {
  schedule::ScheduleLimits l = limits();
  l.max_sequences = 6;
  l.snapshot_stride = 512;
  const auto [snapshots, host] = GetParam();
  {
    World w(l, 200, {}, snapshots, host);
    std::mt19937 random(static_cast<uint32_t>(8 + snapshots));
    std::vector<std::vector<int32_t>> sessions(12);
    std::map<uint64_t, size_t> session_of;
    for (int64_t step = 0; step < 5000; ++step) {
      if (random() % 6 == 0) {
        const size_t i = random() % sessions.size();
        auto& history = sessions[i];
        if (history.size() > 2500 || random() % 20 == 0)
          history.resize(
              std::min<size_t>(history.size(), random() % 3 * 64 * (random() % 8)));  // a new or cut session
        const auto user = random_prompt(random, 1 + static_cast<int64_t>(random() % 300));
        history.insert(history.end(), user.begin(), user.end());
        const auto most = 1 + static_cast<int64_t>(random() % 80);
        if (const uint64_t n = w.add(w.make(history, most, random() % 10 == 0 ? 1 : 0))) session_of[n] = i;
      }
      w.scheduler().for_each([&](schedule::Sequence& s) {
        s.paused = random() % 10 == 0;
        s.cancelled = s.cancelled || random() % 4000 == 0;
      });
      w.step();
      for (const auto& [n, i] : session_of)
        if (w.ended.contains(n) && w.ended[n].tokens.size() > sessions[i].size() && random() % 2 == 0)
          sessions[i] = w.ended[n].tokens;  // the client replays the answer
      std::erase_if(session_of, [&](const auto& e) { return w.ended.contains(e.first); });
      ASSERT_LE(w.cache().pages_used() + w.cache().pages_cached(), 200);
    }
    w.scheduler().for_each([](schedule::Sequence& s) { s.paused = false; });
    w.run();
    EXPECT_GT(w.cached_tokens, 5000) << snapshots << " snapshots";
    EXPECT_GT(w.cache().evictions(), 500u);
    if (host.pages > 0) {
      EXPECT_GT(w.cache().host_hits(), 10u) << host.pages << " host pages";
    }
    EXPECT_EQ(w.cache().pages_used(), 0);
    for (const auto& [number, e] : w.ended) ASSERT_TRUE(World::as_alone(e, number)) << "request " << number;
    w.cache().flush();
    EXPECT_EQ(w.cache().pages_cached(), 0);
    EXPECT_EQ(w.cache().snapshots_used(), 0);
    EXPECT_EQ(w.cache().host_pages_used(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Pools, RandomSessions,
                         testing::Combine(testing::Values(2, 7, 40),
                                          testing::Values(cache::HostSizes{0, 0}, cache::HostSizes{60, 3, 1},
                                                          cache::HostSizes{2000, 100, 4})));

}  // namespace
}  // namespace godwit::simulator
