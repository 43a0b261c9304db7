// The short form of `simulate`: every world, fewer requests.
#include "soak.h"

#include <gtest/gtest.h>

namespace godwit::simulator {
namespace {

TEST(Soak, EveryWorldKeepsEveryInvariant) {
  SoakReport all;
  for (const SoakOptions& world : worlds(40'000)) {
    SCOPED_TRACE(world.name);
    const SoakReport r = soak(world);
    EXPECT_GT(r.stopped, 0);
    EXPECT_GT(r.full_length, 0);
    EXPECT_GT(r.cached_tokens, 0);
    all.cancelled += r.cancelled;
    all.overdue += r.overdue;
    all.not_finite += r.not_finite;
    all.refused += r.refused;
    all.preemptions += r.preemptions;
    all.forced_rows += r.forced_rows;
    all.host_hits += r.host_hits;
    all.evictions += r.evictions;
    all.idle_times += r.idle_times;
    all.moves += r.moves;
    all.swaps += r.swaps;
  }
  // Each of these must have happened, or the run proves nothing about it.
  EXPECT_GT(all.cancelled, 0);
  EXPECT_GT(all.overdue, 0);
  EXPECT_GT(all.not_finite, 0);
  EXPECT_GT(all.refused, 0);
  EXPECT_GT(all.preemptions, 0);
  EXPECT_GT(all.forced_rows, 0);
  EXPECT_GT(all.host_hits, 0);
  EXPECT_GT(all.evictions, 0);
  EXPECT_GT(all.idle_times, 0);
  EXPECT_GT(all.moves, 0);
  EXPECT_GT(all.swaps, 0);
}

}  // namespace
}  // namespace godwit::simulator
