#include "server/mailbox.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "fake_service.h"
#include "harness.h"
#include "server/io_thread.h"

namespace godwit::server::testing {
namespace {

TEST(Mailbox, RunsInOrderWhatOneThreadPosts) {
  IoThread thread;
  thread.start();
  std::vector<int> seen;
  std::atomic<bool> done{false};
  for (int i = 0; i < 1000; ++i) thread.mailbox()->post([&seen, i] { seen.push_back(i); });
  thread.mailbox()->post([&done] { done = true; });
  while (!done) std::this_thread::yield();
  ASSERT_EQ(seen.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
}

TEST(Mailbox, DropsWhatComesAfterItsThread) {
  std::shared_ptr<Mailbox> mailbox;
  {
    IoThread thread;
    thread.start();
    mailbox = thread.mailbox();
  }
  const auto held = std::make_shared<int>(1);
  mailbox->post([held] { FAIL() << "ran on no thread"; });
  EXPECT_EQ(held.use_count(), 1);
}

// The engine outlives the server: its threads post while the I/O threads end. The sanitizers judge.
TEST(Mailbox, TakesPostsWhileItsThreadEnds) {
  for (int round = 0; round < 50; ++round) {
    auto thread = std::make_unique<IoThread>();
    thread->start();
    std::atomic<bool> stop{false};
    std::atomic<int> posting{0};
    std::vector<std::thread> posters;
    for (int i = 0; i < 2; ++i) {
      posters.emplace_back([&stop, &posting, mailbox = thread->mailbox()] {
        ++posting;
        while (!stop) mailbox->post([] {});
      });
    }
    while (posting < 2) std::this_thread::yield();
    thread.reset();
    stop = true;
    for (auto& poster : posters) poster.join();
  }
}

// A stream's sink is woken, and a flush that was asked for is done, after the server has gone.
TEST(Mailbox, OutlivesTheServerInWhatTheEngineHolds) {
  Harness harness([](const engine::Request&) {
    Script script;
    script.ids.assign(1'000'000, 300);
    return script;
  });
  harness.service->token_delay_us_ = 200;
  Client client(harness.port());
  client.send(request_text("POST", "/v1/completions", R"({"prompt":"x","stream":true,"max_tokens":60000})"));
  ASSERT_TRUE(becomes([&] { return harness.service->pushed_ > 3; }));
  harness.service->keep_flush_ = true;
  Client flushing(harness.port());
  flushing.send(request_text("POST", "/flush_cache"));
  ASSERT_TRUE(becomes([&] { return harness.service->flushes_ == 1; }));
  harness.server.reset();
  harness.service->kept_flush_(engine::Flushed{});
  EXPECT_TRUE(becomes([&] { return harness.service->cancelled_ == 1; }));
}

}  // namespace
}  // namespace godwit::server::testing
