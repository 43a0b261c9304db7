// API keys, their limits, and browsers of other origins (api spec §4.2).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <tuple>

#include "harness.h"
#include "server/routes/route_table.h"

namespace godwit::server::testing {
namespace {

using ::testing::HasSubstr;

const std::string kBody = R"({"messages":[{"role":"user","content":"Hi"}]})";

std::string line(std::string_view name, std::string_view secret, std::string_view limits = "") {
  return fmt::format("{} sha256:{} {}\n", name, hex(sha256(secret)), limits);
}

class Access : public ::testing::Test {
 protected:
  void keys(const std::string& text) {
    harness_.server->context().keys =
        std::make_shared<const ApiKeys>(std::move(ApiKeys::parse(text, "keys").value()));
  }
  Answer ask(std::string_view method, std::string_view path, std::string_view headers,
             std::string_view body = "") {
    Client client(harness_.port());
    client.send(request_text(method, path, body, headers));
    return client.receive();
  }
  Answer chat(std::string_view headers) { return ask("POST", "/v1/chat/completions", headers, kBody); }
  Harness harness_{[this](const engine::Request& request) {
    salts_.push_back(request.cache_salt);
    return Script{.ids = {}, .hang = hang_};
  }};
  std::vector<uint64_t> salts_;
  std::atomic<bool> hang_{false};
};

// Whoever may not ask need not send, and the server need not hold, what they would ask.
TEST_F(Access, AreLookedAtBeforeTheBody) {
  keys(line("alice", "secret-a") + line("small", "secret-s", "body=100"));
  const auto head = [](std::string_view path, std::string_view headers, int64_t length) {
    return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\n\r\n", path, headers, length);
  };
  for (const auto& [path, headers, status] :
       {std::tuple("/v1/chat/completions", "", 401),
        std::tuple("/v1/messages", "x-api-key: secret-b\r\n", 401),
        std::tuple("/chat/completions", "Authorization: Bearer secret-b\r\nExpect: 100-continue\r\n", 401),
        std::tuple("/v1/chat/completions", "x-api-key: secret-s\r\n", 413)}) {
    Client client(harness_.port());
    client.send(head(path, headers, 1'000'000));  // and not a byte of the body
    const Answer answer = client.receive();
    EXPECT_EQ(answer.status, status) << path << " " << headers;
    EXPECT_EQ(answer.header("connection"), "close");
  }
  Client client(harness_.port());
  client.send(head("/v1/chat/completions", "x-api-key: secret-a\r\nExpect: 100-continue\r\n",
                   static_cast<int64_t>(kBody.size())));
  EXPECT_THAT(client.receive_some(), ::testing::StartsWith("HTTP/1.1 100 Continue"));
  client.send(kBody);
  EXPECT_EQ(client.receive().status, 200);
}

TEST_F(Access, OnlyKnownKeysGetIn) {
  keys("# two of them\n" + line("alice", "secret-a") + line("bob", "secret-b"));
  EXPECT_EQ(chat("Authorization: Bearer secret-a\r\n").status, 200);
  EXPECT_EQ(chat("authorization: bEARER  secret-b\r\n").status, 200);
  EXPECT_EQ(chat("X-API-Key: secret-b\r\n").status, 200);
  for (const char* headers :
       {"", "Authorization: Bearer secret-c\r\n", "Authorization: Bearer \r\n",
        "Authorization: Basic secret-a\r\n", "X-Api-Key: secret-\r\n", "Authorization: secret-a\r\n"}) {
    const Answer answer = chat(headers);
    EXPECT_EQ(answer.status, 401) << headers;
    EXPECT_EQ(answer.header("www-authenticate"), "Bearer");
    const Json error = *answer.json().find("error");
    EXPECT_EQ(error.find("code")->as_string(), "invalid_api_key");
    EXPECT_THAT(answer.body, ::testing::Not(HasSubstr("secret-")));
  }
  const Json anthropic = ask("POST", "/v1/messages", "", kBody).json();
  EXPECT_EQ(anthropic.find("error")->find("type")->as_string(), "authentication_error");
  EXPECT_THAT(
      harness_.get("/metrics").body,
      ::testing::AllOf(HasSubstr("godwit_api_key_requests_total{key=\"alice\",result=\"accepted\"} 1"),
                       HasSubstr("godwit_api_key_requests_total{key=\"\",result=\"unknown\"} 7"),
                       ::testing::Not(HasSubstr("secret"))));
}

TEST_F(Access, EveryRouteNeedsAKeyButProbesAndWhatHoldsNoSecret) {
  keys(line("alice", "secret-a"));
  for (const Route& route : routes()) {
    if (route.access == RouteAccess::admin) continue;  // guarded by where it comes from
    std::string path(route.path);
    if (path.ends_with('*')) path.back() = 'x';
    const int status = ask(route.method, path, "", route.method == "POST" ? kBody : "").status;
    static const std::set<std::string_view> kOpen = {"/livez",   "/readyz", "/startupz",     "/health",
                                                     "/metrics", "/",       "/openapi.json", "/version"};
    EXPECT_EQ(status == 401, !kOpen.contains(route.path)) << route.method << " " << path << ": " << status;
  }
  EXPECT_EQ(ask("OPTIONS", "/v1/models", "").status, 204);
}

TEST_F(Access, AKeyHasItsOwnLimits) {
  keys(line("few", "a", "concurrent=1") + line("slow", "b", "per-minute=2") + line("small", "c", "body=20"));
  hang_ = true;
  Client running(harness_.port());
  running.send(request_text("POST", "/v1/chat/completions", kBody, "x-api-key: a\r\n"));
  ASSERT_TRUE(becomes([&] { return harness_.service->status().running == 1; }));
  const Answer second = chat("x-api-key: a\r\n");
  EXPECT_EQ(second.status, 429);
  EXPECT_FALSE(second.header("retry-after").empty());
  EXPECT_THAT(second.body, HasSubstr("1 requests running"));
  running.close();
  hang_ = false;
  // The place is free once the server has seen the client leave.
  EXPECT_TRUE(becomes([&] { return chat("x-api-key: a\r\n").status == 200; }));
  EXPECT_EQ(chat("x-api-key: a\r\n").status, 200) << "an ended answer still counts";

  EXPECT_EQ(chat("x-api-key: c\r\n").status, 413);
}

TEST(ApiKeyRate, IsABucketThatFillsEvenly) {
  const ApiKeys keys = std::move(ApiKeys::parse(line("slow", "b", "per-minute=2"), "keys").value());
  ApiKey& key = *keys.find("b");
  constexpr int64_t kSecond = 1'000'000'000;
  const auto admitted = [&](int64_t at) { return key.admit(0, at).ok(); };
  EXPECT_TRUE(admitted(1000 * kSecond));
  EXPECT_TRUE(admitted(1000 * kSecond));
  EXPECT_FALSE(admitted(1000 * kSecond));
  EXPECT_FALSE(admitted(1029 * kSecond));
  EXPECT_TRUE(admitted(1031 * kSecond));
  EXPECT_FALSE(admitted(1032 * kSecond));
  EXPECT_TRUE(admitted(9000 * kSecond));
  EXPECT_TRUE(admitted(9000 * kSecond));
  EXPECT_FALSE(admitted(9000 * kSecond)) << "unused minutes do not add up";
}

TEST_F(Access, IsolatedKeysShareNoPrefixAndNoStoredResponse) {
  keys(line("a", "a") + line("b", "b") + line("c", "c", "isolated") + line("d", "d", "isolated"));
  for (const char* key : {"a", "b", "c", "d"}) chat(fmt::format("x-api-key: {}\r\n", key));
  ASSERT_EQ(salts_.size(), 4u);
  EXPECT_EQ(salts_[0], salts_[1]);
  EXPECT_EQ((std::set<uint64_t>{salts_[0], salts_[2], salts_[3]}).size(), 3u);

  const Json stored = ask("POST", "/v1/responses", "x-api-key: a\r\n", R"({"input":"Hi"})").json();
  const std::string path = "/v1/responses/" + stored.find("id")->as_string();
  EXPECT_EQ(ask("GET", path, "x-api-key: a\r\n").status, 200);
  EXPECT_EQ(ask("GET", path, "x-api-key: b\r\n").status, 404);
  EXPECT_EQ(ask("DELETE", path, "x-api-key: b\r\n").status, 404);
  EXPECT_EQ(ask("POST", "/v1/responses", "x-api-key: b\r\n",
                R"({"input":"Hi","previous_response_id":")" + stored.find("id")->as_string() + "\"}")
                .status,
            404);
}

TEST(ApiKeyFile, AKeyInPlaceOfItsHashIsNotRepeatedInTheMessage) {
  const std::string hash = "sha256:" + std::string(64, 'a');
  for (const std::string& text :
       {std::string("sk-secret"), std::string("sk/secret=="), std::string("bob sk-secret"),
        std::string("sk-secret bob"), "bob " + hash + " sk-secret", "bob " + hash + " sk=secret",
        std::string("bob sha256:secret"), "sk+secret " + hash}) {
    const auto keys = ApiKeys::parse(text, "keys.txt");
    ASSERT_FALSE(keys.ok()) << text;
    EXPECT_THAT(keys.error().message, ::testing::Not(HasSubstr("secret")));
    EXPECT_EQ(keys.error().field, "keys.txt:1");
  }
}

TEST(ApiKeyFile, BadLinesAreRefusedByNumber) {
  const std::string good = line("a", "x");
  const std::pair<std::string, const char*> table[] = {
      {"", "has no key"},
      {"# nothing\n", "has no key"},
      {good + "bob\n", "64 hex digits"},
      {good + "bob sha256:12\n", "64 hex digits"},
      {good + "bob sha256:" + std::string(64, 'g') + "\n", "64 hex digits"},
      {good + "bob md5:" + std::string(64, 'a') + "\n", "64 hex digits"},
      {good + line("b b", "y"), "64 hex digits"},
      {good + line("b\"b", "y"), "may only have letters"},
      {good + line(std::string(65, 'b'), "y"), "may only have letters"},
      {good + line("b", "y", "speed=3"), "what comes after the hash is not understood"},
      {good + line("b", "y", "concurrent=0"), "concurrent=0 is not understood"},
      {good + line("b", "y", "concurrent=3x"), "concurrent=3x is not understood"},
      {good + line("b", "y", "concurrent"), "concurrent is not understood"},
      {good + line("a", "y"), "the name or the key of a line before"},
      {good + line("b", "x"), "the name or the key of a line before"},
  };
  for (const auto& [text, says] : table) {
    const auto keys = ApiKeys::parse(text, "keys.txt");
    ASSERT_FALSE(keys.ok()) << text;
    EXPECT_THAT(keys.error().message, HasSubstr(says)) << text;
    if (text.starts_with("a ")) {
      EXPECT_EQ(keys.error().field, "keys.txt:2");
    }
  }
}

TEST_F(Access, OtherOriginsAreToldNothingUnlessTheyWereNamed) {
  const std::string origin = "Origin: http://app.test\r\n";
  const std::string ask_first = origin +
                                "Access-Control-Request-Method: POST\r\n"
                                "Access-Control-Request-Headers: authorization, x-odd\r\n";
  EXPECT_EQ(chat(origin).header("access-control-allow-origin"), "");
  EXPECT_EQ(ask("OPTIONS", "/v1/messages", ask_first).header("access-control-allow-origin"), "");

  harness_.server->context().cors_origins = {"http://app.test"};
  keys(line("alice", "secret-a"));
  const Answer first = ask("OPTIONS", "/v1/messages", ask_first);
  EXPECT_EQ(first.status, 204);
  EXPECT_EQ(first.header("access-control-allow-origin"), "http://app.test");
  EXPECT_THAT(first.header("access-control-allow-methods"), HasSubstr("POST"));
  EXPECT_EQ(first.header("access-control-allow-headers"), "authorization, x-odd");
  EXPECT_EQ(chat(origin + "x-api-key: secret-a\r\n").header("access-control-allow-origin"),
            "http://app.test");
  EXPECT_EQ(chat(origin).header("access-control-allow-origin"), "http://app.test")
      << "a 401 must be readable, too";
  EXPECT_EQ(chat("Origin: http://evil.test\r\n").header("access-control-allow-origin"), "");
  EXPECT_EQ(harness_.get("/livez").header("vary"), "");
  const std::string streamed = R"({"stream":true,"messages":[{"role":"user","content":"Hi"}]})";
  EXPECT_EQ(ask("POST", "/v1/chat/completions", origin + "x-api-key: secret-a\r\n", streamed)
                .header("access-control-allow-origin"),
            "http://app.test");
}

}  // namespace
}  // namespace godwit::server::testing
