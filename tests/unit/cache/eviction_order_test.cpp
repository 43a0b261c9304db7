// The heap against a sorted set under random changes.
#include "cache/eviction_order.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <tuple>
#include <vector>

namespace godwit::cache {
namespace {

TEST(EvictionOrder, NamesTheLeastUnderRandomChanges) {
  constexpr int32_t kItems = 300;
  EvictionOrder order(kItems);
  std::set<std::tuple<int64_t, int64_t, int32_t>> model;
  std::vector<EvictionOrder::Rank> ranks(kItems);
  std::vector<bool> there(kItems, false);
  std::mt19937 random(1);
  EXPECT_EQ(order.least(), -1);
  for (int64_t tick = 0; tick < 50'000; ++tick) {
    const auto item = static_cast<int32_t>(random() % kItems);
    const auto i = static_cast<size_t>(item);
    if (there[i]) model.erase({ranks[i].worth, ranks[i].used, item});
    if (random() % 3 == 0) {
      order.remove(item);  // also of what is not there
      there[i] = false;
    } else {
      ranks[i] = {static_cast<int64_t>(random() % 20), tick};
      order.set(item, ranks[i]);
      there[i] = true;
      model.insert({ranks[i].worth, ranks[i].used, item});
    }
    ASSERT_EQ(order.least(), model.empty() ? -1 : std::get<2>(*model.begin())) << "at " << tick;
  }
}

}  // namespace
}  // namespace godwit::cache
