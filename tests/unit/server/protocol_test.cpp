// HTTP itself, over raw sockets: limits, framing, keep-alive, probes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "harness.h"

namespace godwit::server::testing {
namespace {

using ::testing::HasSubstr;

Script nothing(const engine::Request&) {
  return {};
}
const std::string kBody = R"({"messages":[{"role":"user","content":"Hi"}]})";

TEST(Protocol, UnknownPathsAre404AndWrongMethods405WithAllow) {
  Harness harness(nothing);
  const Answer missing = harness.get("/v2/nothing");
  EXPECT_EQ(missing.status, 404);
  EXPECT_TRUE(missing.json().find("error"));
  const Answer wrong = harness.get("/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.header("allow"), "POST, OPTIONS");
  Client client(harness.port());
  client.send(request_text("DELETE", "/metrics"));
  EXPECT_EQ(client.receive().header("allow"), "GET, HEAD, OPTIONS");
  client.send(request_text("OPTIONS", "/v1/models"));
  const Answer options = client.receive();
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.header("allow"), "GET, HEAD, OPTIONS");
}

TEST(Protocol, PathsAreToleratedWithSlashesPrefixesAndEscapes) {
  Harness harness(nothing);
  for (const char* path : {"/v1/models", "/v1/models/", "//v1/models", "/models", "/v1/models?x=1",
                           "/v1/models/org/alias", "/v1/models/org%2Falias"}) {
    EXPECT_EQ(harness.get(path).status, 200) << path;
  }
  EXPECT_EQ(harness.get("/v1/models/nobody").status, 404);
  EXPECT_EQ(harness.post("/chat/completions", kBody).status, 200);
}

TEST(Protocol, HeadAnswersWithoutABody) {
  Harness harness(nothing);
  Client client(harness.port());
  client.send("HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  std::string all;
  for (std::string some; !(some = client.receive_some()).empty();) all += some;
  EXPECT_THAT(all, ::testing::StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(all, ::testing::EndsWith("\r\n\r\n"));
}

TEST(Protocol, RequestIdsAreEchoedOrDrawn) {
  Harness harness(nothing);
  Client client(harness.port());
  client.send(request_text("GET", "/livez", "", "X-Request-Id: my-id-7\r\n"));
  EXPECT_EQ(client.receive().header("x-request-id"), "my-id-7");
  client.send(request_text("GET", "/livez", "", "X-Request-Id: two words\r\n"));
  const Answer drawn = client.receive();
  EXPECT_THAT(drawn.header("x-request-id"), ::testing::StartsWith("req-"));
  const Answer plain = harness.get("/livez");
  EXPECT_THAT(plain.header("x-request-id"), ::testing::StartsWith("req-"));
  EXPECT_FALSE(plain.header("openai-processing-ms").empty());
}

TEST(Protocol, PipelinedRequestsAreAnsweredInOrderOnOneConnection) {
  Harness harness(nothing);
  Client client(harness.port());
  client.send(request_text("GET", "/livez") + request_text("POST", "/v1/chat/completions", kBody) +
              request_text("GET", "/nothing"));
  EXPECT_EQ(client.receive().body, R"({"status":"ok"})");
  EXPECT_THAT(client.receive().body, HasSubstr("chat.completion"));
  EXPECT_EQ(client.receive().status, 404);
}

TEST(Protocol, ChunkedBodiesAndExpectContinueAreRead) {
  Harness harness(nothing);
  Client client(harness.port());
  std::string chunks;
  for (const char c : kBody) chunks += std::string("1\r\n") + c + "\r\n";
  client.send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks +
              "0\r\n\r\n");
  EXPECT_EQ(client.receive().status, 200);
  client.send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: " +
              std::to_string(kBody.size()) + "\r\n\r\n");
  EXPECT_THAT(client.receive_some(), ::testing::StartsWith("HTTP/1.1 100 Continue\r\n\r\n"));
  client.send(kBody);
  EXPECT_EQ(client.receive().status, 200);
}

TEST(Protocol, LimitsAnswerBeforeTheBodyIsRead) {
  HttpLimits limits;
  limits.body_bytes = 1000;
  limits.header_bytes = 2048;
  Harness harness(nothing, limits);
  {
    Client client(harness.port());
    client.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n");
    const Answer answer = client.receive();
    EXPECT_EQ(answer.status, 413);
    EXPECT_THAT(answer.body, HasSubstr("1000 bytes"));
    EXPECT_EQ(answer.header("connection"), "close");
  }
  {
    Client client(harness.port());
    std::string body;
    for (int i = 0; i < 40; ++i) body += "20\r\n" + std::string(32, 'a') + "\r\n";
    client.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + body);
    EXPECT_EQ(client.receive().status, 413);
  }
  {
    Client client(harness.port());
    client.send("GET /livez HTTP/1.1\r\nHost: x\r\nX: " + std::string(4000, 'a') + "\r\n\r\n");
    EXPECT_EQ(client.receive().status, 431);
  }
  EXPECT_EQ(harness.get("/livez").status, 200);
}

TEST(Protocol, WhatIsNotHttpGets400AndTheConnectionEnds) {
  Harness harness(nothing);
  for (const std::string& bytes :
       {std::string("nonsense\r\n\r\n"), std::string("GET /livez HTTP/1.1\r\n\r\n"),
        std::string("GET /livez HTTP/9.9\r\nHost: x\r\n\r\n"),
        std::string("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n"),
        std::string("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: "
                    "6\r\n\r\nhello"),
        std::string("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
                    "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        std::string(
            "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nhello\r\n"),
        std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 15)}) {
    Client client(harness.port());
    client.send(bytes);
    EXPECT_EQ(client.receive().status, 400) << bytes;
    client.finish_sending();
    EXPECT_TRUE(client.at_end()) << bytes;
  }
  Client encoded(harness.port());
  encoded.send(request_text("POST", "/v1/completions", "x", "Content-Encoding: gzip\r\n"));
  EXPECT_EQ(encoded.receive().status, 415);
  EXPECT_EQ(harness.get("/livez").status, 200);
}

TEST(Protocol, AContentLengthThatLiesTimesOutAndShortBodiesDoNotHang) {
  HttpLimits limits;
  limits.header_ms = 100;
  limits.body_ms = 100;
  limits.idle_ms = 300;
  Harness harness(nothing, limits);
  Client liar(harness.port());
  liar.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{}");
  EXPECT_EQ(liar.receive().status, 408);
  Client slow(harness.port());
  slow.send("GET /livez HTTP/1.1\r\nHo");
  EXPECT_EQ(slow.receive().status, 408);
  Client idle(harness.port());
  EXPECT_TRUE(idle.at_end()) << "an idle connection stays open";
}

TEST(Protocol, Http10IsServed) {
  Harness harness([](const engine::Request&) { return Script{}; });
  Client client(harness.port());
  const std::string body = R"({"stream":true,"messages":[{"role":"user","content":"Hi"}]})";
  client.send("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) +
              "\r\n\r\n" + body);
  std::string all;
  for (std::string some; !(some = client.receive_some()).empty();) all += some;
  EXPECT_THAT(all, ::testing::EndsWith("data: [DONE]\n\n"));
  EXPECT_THAT(all, ::testing::Not(HasSubstr("chunked")));
}

TEST(Protocol, MoreConnectionsThanAllowedAreTurnedAway) {
  HttpLimits limits;
  limits.connections = 2;
  Harness harness([](const engine::Request&) { return Script{.ids = {}, .hang = true}; }, limits);
  const std::string busy = request_text("POST", "/v1/completions", R"({"prompt":"a"})");
  Client a(harness.port());
  a.send(busy);
  EXPECT_TRUE(becomes([&] { return harness.service->status().running == 1; }));
  Client b(harness.port());
  b.send(busy);
  EXPECT_TRUE(becomes([&] { return harness.service->status().running == 2; }));
  Client c(harness.port());
  EXPECT_EQ(c.receive().status, 503);
  b.close();
  EXPECT_TRUE(becomes([&] { return harness.server->context().connections() == 1; }));
  EXPECT_EQ(harness.get("/livez").status, 200);
}

// Clients that keep connections open for later must not keep others out; those that wait for an answer stay.
TEST(Protocol, IdleConnectionsGiveWayNearTheLimit) {
  HttpLimits limits;
  limits.connections = 128;
  Harness harness([](const engine::Request&) { return Script{.ids = {}, .hang = true}; }, limits);
  Client waiting(harness.port());
  waiting.send(request_text("POST", "/v1/completions", R"({"prompt":"a"})"));
  EXPECT_TRUE(becomes([&] { return harness.service->status().running == 1; }));
  Client half(harness.port());  // in the middle of a request
  half.send("GET /livez HTTP/1.1\r\nHost: x\r\n");
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 300; ++i) {
    idle.push_back(std::make_unique<Client>(harness.port()));
    idle.back()->send(request_text("GET", "/livez"));
    ASSERT_EQ(idle.back()->receive().status, 200) << i;
  }
  EXPECT_LE(harness.server->context().connections(), 128);
  EXPECT_TRUE(idle.front()->at_end(60'000)) << "the longest idle one goes first";
  idle.back()->send(request_text("GET", "/livez"));
  EXPECT_EQ(idle.back()->receive().status, 200);
  half.send("\r\n");
  EXPECT_EQ(half.receive().status, 200);
  EXPECT_EQ(harness.service->status().running, 1);
}

TEST(Probes, TellLoadingReadyStalledAndDead) {
  Harness harness(nothing, {}, 4096, false);
  harness.server->set_progress({"placing weights", 0.25, ""});
  EXPECT_EQ(harness.get("/livez").status, 200);
  EXPECT_EQ(harness.get("/readyz").status, 503);
  EXPECT_EQ(harness.get("/health").status, 503);
  const Answer starting = harness.get("/startupz");
  EXPECT_EQ(starting.status, 503);
  EXPECT_EQ(starting.json().find("fraction")->as_double(), 0.25);
  EXPECT_EQ(harness.get("/v1/models").status, 503);
  EXPECT_EQ(harness.post("/v1/chat/completions", kBody).header("retry-after"), "1");

  harness.load();
  for (const char* path : {"/livez", "/readyz", "/startupz", "/health"})
    EXPECT_EQ(harness.get(path).status, 200);

  // Work is pending and no step finishes: alive and accepting, but not healthy.
  harness.service->paused_ = true;
  Client pending(harness.port());
  pending.send(request_text("POST", "/v1/chat/completions", kBody));
  ASSERT_TRUE(becomes([&] { return harness.service->status().running == 1; }));
  harness.server->context().stall_ns = 1'000'000;
  harness.service->progress_ns_ = 1;
  EXPECT_EQ(harness.get("/health").status, 503);
  EXPECT_EQ(harness.get("/readyz").status, 200);
  harness.service->paused_ = false;
  EXPECT_EQ(pending.receive().status, 200);
  // The answer leaves before the engine's count of running requests falls.
  EXPECT_TRUE(becomes([&] { return harness.service->status().running == 0; }));
  EXPECT_EQ(harness.get("/health").status, 200) << "nothing is pending any more";

  harness.service->health_ = engine::Health::dead;
  EXPECT_EQ(harness.get("/readyz").status, 503);
  EXPECT_EQ(harness.get("/health").status, 503);
  EXPECT_EQ(harness.get("/livez").status, 200);
}

TEST(Protocol, InformationRoutesSayWhatIsInForce) {
  Harness harness(nothing);
  const Json models = harness.get("/v1/models").json();
  const Json& first = models.find("data")->as_array()[0];
  EXPECT_EQ(first.find("id")->as_string(), "tiny");
  EXPECT_EQ(first.find("context_length")->as_integer(), 4096);
  EXPECT_FALSE(first.find("capabilities")->find("vision")->as_bool());
  EXPECT_EQ(harness.get("/server_info").json().find("engine")->find("backend")->as_string(), "fake");
  EXPECT_EQ(harness.get("/version").json().find("version")->as_string(), "test-build, somewhere");
  EXPECT_THAT(harness.get("/").header("content-type"), HasSubstr("text/html"));
  const std::string metrics = harness.get("/metrics").body;
  for (const char* name : {"godwit_ready 1", "godwit_requests_total{code=\"200\",route=\"models\"} 1",
                           "godwit_slots_total 1024", "godwit_time_to_first_token_seconds_bucket"}) {
    EXPECT_THAT(metrics, HasSubstr(name));
  }
  const Json tokens = harness.post("/tokenize", R"({"prompt":"hello <|user|>"})").json();
  const std::string back =
      harness.post("/detokenize", R"({"tokens":)" + dump_json(*tokens.find("tokens")) + "}")
          .json()
          .find("prompt")
          ->as_string();
  EXPECT_EQ(back, "hello <|user|>");
}

}  // namespace
}  // namespace godwit::server::testing
