// What an operator can read of a running server: /server_info and /metrics say the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "harness.h"

namespace godwit::server::testing {
namespace {

using ::testing::HasSubstr;

Script nothing(const engine::Request&) {
  return {};
}

TEST(Info, ASettingThatIsNotInForceIsAFieldAndAMetric) {
  Harness harness(nothing);
  harness.service->info_.adjustments = {{"prefill-tokens", 100, 128, "a slice is whole pages of 64 tokens"}};
  const Json info = harness.get("/server_info").json();
  const JsonArray& adjusted = info.find("engine")->find("adjusted")->as_array();
  ASSERT_EQ(adjusted.size(), 1u);
  EXPECT_EQ(adjusted[0].find("setting")->as_string(), "prefill-tokens");
  EXPECT_EQ(adjusted[0].find("requested")->as_integer(), 100);
  EXPECT_EQ(adjusted[0].find("effective")->as_integer(), 128);
  EXPECT_EQ(adjusted[0].find("reason")->as_string(), "a slice is whole pages of 64 tokens");
  EXPECT_THAT(
      harness.get("/metrics").body,
      HasSubstr(R"(godwit_setting_adjusted{effective="128",requested="100",setting="prefill-tokens"} 1)"));
}

// A route without a model says why, also when the model comes in that moment.
TEST(Info, TheMomentOfLoadingIsNotSeenTwice) {
  Harness harness(nothing);
  std::atomic<bool> done{false};
  std::thread loading([&] {
    for (bool there = false; !done.load(); there = !there)
      harness.server->set_model(there ? harness.model : nullptr);
  });
  for (const char* path : {"/v1/models", "/v1/models/x", "/tokenizer_info"}) {
    Client client(harness.port());
    for (int i = 0; i < 2000; ++i) {
      client.send(request_text("GET", path));
      const Answer answer = client.receive();
      ASSERT_THAT(answer.status, ::testing::AnyOf(200, 404, 503)) << path;
      ASSERT_TRUE(answer.status != 503 || answer.json().find("error")) << answer.body;
    }
  }
  done = true;
  loading.join();
}

TEST(Info, TheCacheIsInBothWithEveryReasonOfAMiss) {
  Harness harness(nothing);
  harness.service->info_.itl_target_ms = 25;
  harness.service->info_.snapshots = 40;
  const Json info = harness.get("/server_info").json();
  const Json& engine = *info.find("engine");
  EXPECT_EQ(engine.find("itl_target_ms")->as_integer(), 25);
  EXPECT_EQ(engine.find("snapshots")->as_integer(), 40);
  const std::string metrics = harness.get("/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("godwit_itl_target_seconds 0.025\n"));
  EXPECT_THAT(metrics, HasSubstr("godwit_snapshots_total 40\n"));
  for (const char* reason : {"disabled", "too_short", "no_snapshot", "evicted", "first_difference"}) {
    EXPECT_TRUE(engine.find("prefix_cache")->find("misses")->find(reason)) << reason;
    EXPECT_THAT(metrics, HasSubstr("godwit_prefix_misses_total{reason=\"" + std::string(reason) + "\"} 0\n"));
  }
  EXPECT_FALSE(engine.find("prefix_cache")->find("misses")->find("none")) << "a full hit is no miss";
}

}  // namespace
}  // namespace godwit::server::testing
