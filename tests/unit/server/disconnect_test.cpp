// Clients that leave, stall or only half-close; and the end of the server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "harness.h"

namespace godwit::server::testing {
namespace {

using ::testing::HasSubstr;

const std::string kStream = R"({"stream":true,"messages":[{"role":"user","content":"Hi"}]})";
const std::string kWhole = R"({"messages":[{"role":"user","content":"Hi"}]})";

Script endless(const engine::Request&) {
  Script script;
  script.ids.assign(2000, 300);
  script.reason = engine::FinishReason::length;
  return script;
}

// phase 0: before any id (queue, prefill); 1: while ids come.
class Leaving : public ::testing::TestWithParam<std::tuple<bool, bool, int>> {};

TEST_P(Leaving, CancelsTheSequence) {
  const auto [stream, reset, phase] = GetParam();
  Harness harness(endless);
  harness.service->token_delay_us_ = 2000;
  harness.service->paused_ = phase == 0;
  Client client(harness.port());
  client.send(request_text("POST", "/v1/chat/completions", stream ? kStream : kWhole));
  ASSERT_TRUE(becomes([&] { return harness.service->status().running == 1; }));
  if (phase == 1) {
    ASSERT_TRUE(becomes([&] { return harness.service->pushed_ > 3; }));
  }
  EXPECT_EQ(harness.service->cancelled_.load(), 0);
  client.close(reset);
  EXPECT_TRUE(becomes([&] { return harness.service->cancelled_ == 1; }));
  EXPECT_TRUE(becomes([&] { return harness.server->context().connections() == 0; }));
  EXPECT_THAT(harness.get("/metrics").body, HasSubstr("godwit_aborts_total 1"));
}

INSTANTIATE_TEST_SUITE_P(Phases, Leaving,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool(), ::testing::Values(0, 1)));

TEST(HalfClosed, ClientsStillGetTheirAnswer) {
  for (const std::string& body : {kStream, kWhole}) {
    Harness harness([](const engine::Request&) {
      Script script;
      script.ids.assign(50, 300);
      return script;
    });
    harness.service->token_delay_us_ = 2000;
    Client client(harness.port());
    client.send(request_text("POST", "/v1/chat/completions", body));
    client.finish_sending();
    const Answer answer = client.receive();
    EXPECT_EQ(answer.status, 200);
    EXPECT_THAT(answer.body, HasSubstr("finish_reason\":\"stop"));
    EXPECT_EQ(harness.service->cancelled_.load(), 0);
    EXPECT_TRUE(client.at_end());
  }
}

TEST(SlowReader, PausesItsOwnSequenceAndResumes) {
  HttpLimits limits;
  limits.stream_buffer = 4096;
  Harness harness(
      [](const engine::Request&) {
        Script script;
        script.ids.assign(60'000, 300);
        return script;
      },
      limits, 1 << 20);
  Client slow(harness.port(), 4096);
  slow.send(request_text("POST", "/v1/completions", R"({"prompt":"x","stream":true,"max_tokens":60000})"));
  int64_t before = -1;
  ASSERT_TRUE(becomes([&] {  // no more ids are taken once socket, buffer and sink are full
    const int64_t now = harness.service->pushed_;
    const bool still = now > 0 && now == before;
    before = now;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return still;
  }));
  EXPECT_LT(before, 60'000);
  // Others are served meanwhile.
  EXPECT_EQ(harness.post("/v1/completions", R"({"prompt":"x","max_tokens":5})").status, 200);
  const Answer answer = slow.receive();
  EXPECT_THAT(answer.body, ::testing::EndsWith("data: [DONE]\n\n"));
  EXPECT_EQ(answer.events().size(), 60'002u) << "every id's event, the finish chunk, [DONE]";
}

TEST(SlowReader, IsCutAfterTheWriteTimeout) {
  HttpLimits limits;
  limits.stream_buffer = 4096;
  limits.write_ms = 200;
  Harness harness(
      [](const engine::Request&) {
        Script script;
        script.ids.assign(1'000'000, 300);
        return script;
      },
      limits, 1 << 21);
  Client slow(harness.port(), 4096);
  slow.send(request_text("POST", "/v1/completions", R"({"prompt":"x","stream":true,"max_tokens":1000000})"));
  EXPECT_TRUE(becomes([&] { return harness.service->cancelled_ == 1; }));
}

TEST(Silence, IsBrokenByComments) {
  HttpLimits limits;
  limits.keep_alive_comment_ms = 50;
  Harness harness(endless, limits);
  harness.service->paused_ = true;
  Client client(harness.port());
  client.send(request_text("POST", "/v1/chat/completions", kStream));
  std::string all;
  ASSERT_TRUE(becomes([&] {
    all += client.receive_some(100);
    size_t comments = 0;
    for (size_t at = 0; (at = all.find("\n:\n\n", at)) != all.npos; ++at) ++comments;
    return comments >= 2;
  }));
}

TEST(Drain, RunningStreamsEndAndNewRequestsAreRefused) {
  Harness harness([](const engine::Request&) {
    Script script;
    script.ids.assign(100, 300);
    return script;
  });
  harness.service->token_delay_us_ = 2000;
  Client client(harness.port());
  client.send(request_text("POST", "/v1/chat/completions", kStream));
  ASSERT_TRUE(becomes([&] { return harness.service->pushed_ > 2; }));
  std::thread draining([&] { harness.server->drain(10'000); });
  ASSERT_TRUE(becomes([&] { return harness.get("/readyz").status == 503; }));
  EXPECT_EQ(harness.get("/livez").status, 200);
  EXPECT_EQ(harness.post("/v1/chat/completions", kWhole).status, 503);
  const Answer answer = client.receive();
  EXPECT_THAT(answer.body, HasSubstr("finish_reason\":\"stop"));
  EXPECT_TRUE(client.at_end()) << "keep-alive ends while draining";
  draining.join();
}

TEST(Drain, TheDeadlineEndsStreamsWithAnErrorEvent) {
  Harness harness(endless);
  harness.service->token_delay_us_ = 5000;
  Client stream(harness.port());
  stream.send(request_text("POST", "/v1/chat/completions", kStream));
  Client whole(harness.port());
  whole.send(request_text("POST", "/v1/chat/completions", kWhole));
  ASSERT_TRUE(becomes([&] { return harness.service->status().running == 2; }));
  harness.server->drain(50);
  const Answer answer = stream.receive();
  EXPECT_THAT(answer.body, ::testing::EndsWith("}\n\ndata: [DONE]\n\n"));
  EXPECT_THAT(answer.body, HasSubstr("data: {\"error\""));
  EXPECT_EQ(whole.receive().status, 503);
}

TEST(LongBodies, DoNotDelayShortOnes) {
  Harness harness([](const engine::Request&) { return Script{}; }, {}, 1 << 22);
  std::string text;
  while (text.size() < (2u << 20)) text += "the quick brown fox 12345, ";
  Client big(harness.port());
  big.send(request_text("POST", "/tokenize", R"({"prompt":")" + text + "\"}"));
  // Both text workers would be busy if the long ones shared their lane.
  Client big2(harness.port());
  big2.send(request_text("POST", "/tokenize", R"({"prompt":")" + text + "\"}"));
  EXPECT_EQ(harness.post("/v1/chat/completions", kWhole).status, 200);
  EXPECT_EQ(big.receive(300'000).status,
            200);  // their thread has a low priority: a busy machine takes its time
  EXPECT_EQ(big2.receive(300'000).status, 200);
}

}  // namespace
}  // namespace godwit::server::testing
