#include "base/queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace godwit {
namespace {

using namespace std::chrono_literals;

TEST(BoundedQueue, RefusesWhenFullAndKeepsOrder) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.try_push(1));
  EXPECT_TRUE(queue.try_push(2));
  EXPECT_FALSE(queue.try_push(3));
  EXPECT_EQ(queue.try_pop(), 1);
  EXPECT_TRUE(queue.try_push(4));
  EXPECT_EQ(queue.try_pop(), 2);
  EXPECT_EQ(queue.try_pop(), 4);
  EXPECT_EQ(queue.try_pop(), std::nullopt);
}

TEST(BoundedQueue, CloseDrainsAndWakes) {
  BoundedQueue<int> queue(4);
  EXPECT_TRUE(queue.try_push(1));
  std::thread closer([&] { queue.close(); });
  EXPECT_EQ(queue.pop_for(10s), 1);
  EXPECT_EQ(queue.pop_for(10s), std::nullopt);  // returns by the close, long before its timeout
  closer.join();
  EXPECT_FALSE(queue.try_push(2));
}

TEST(BoundedQueue, PopTimesOut) {
  BoundedQueue<int> queue(1);
  EXPECT_EQ(queue.pop_for(1ms), std::nullopt);
}

TEST(BoundedQueue, NothingIsLostBetweenThreads) {
  constexpr int kEach = 20'000;
  BoundedQueue<int> queue(64);
  std::atomic<int64_t> sum = 0;
  std::vector<std::thread> threads;
  for (int p = 0; p < 2; ++p) {
    threads.emplace_back([&] {
      for (int i = 1; i <= kEach; ++i) {
        while (!queue.try_push(int{i})) std::this_thread::yield();
      }
    });
  }
  for (int c = 0; c < 2; ++c) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        std::optional<int> got;
        while (!(got = queue.pop_for(1s))) {
        }
        sum += *got;
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(sum, int64_t{kEach} * (kEach + 1));
  EXPECT_EQ(queue.size(), 0u);
}

}  // namespace
}  // namespace godwit
