// Bytes that are almost HTTP: what must be refused so that no two readers of one connection see different
// requests, and what must not be able to fill memory or hold a connection for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "harness.h"

namespace godwit::server::testing {
namespace {

using ::testing::HasSubstr;

Script nothing(const engine::Request&) {
  return {};
}
const std::string kBody = R"({"messages":[{"role":"user","content":"Hi"}]})";

std::string post_with(std::string_view headers, std::string_view body, std::string_view version = "1.1") {
  return "POST /v1/chat/completions HTTP/" + std::string(version) + "\r\nHost: x\r\n" + std::string(headers) +
         "\r\n" + std::string(body);
}

// Everything that comes until the server closes.
std::string all_of(Client& client) {
  std::string all;
  for (std::string some; !(some = client.receive_some()).empty();) all += some;
  return all;
}

size_t answers_in(const std::string& all) {
  size_t count = 0;
  for (size_t at = 0; (at = all.find("\r\nx-request-id: ", at)) != all.npos; ++at) ++count;
  return count;
}

// A second request inside what an intermediary may have taken for the body.
const std::string kHidden = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";

TEST(Framing, BodiesOfTwoReadingsAreRefusedAndNothingAfterThemIsRead) {
  Harness harness(nothing);
  const std::string length = "Content-Length: " + std::to_string(kHidden.size()) + "\r\n";
  for (const std::string& headers :
       {std::string("Transfer-Encoding: xchunked\r\n"),
        std::string("Transfer-Encoding: chunked, identity\r\n"),
        std::string("Transfer-Encoding: identity, chunked\r\n"), std::string("Transfer-Encoding: gzip\r\n"),
        std::string("Transfer-Encoding: gzip, chunked\r\n"), std::string("Transfer-Encoding: \r\n"),
        std::string("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        std::string("Transfer-Encoding : chunked\r\n"), length + "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\n" + length, length + "Content-Length: 3\r\n",
        std::string("Content-Length: +3\r\n"), std::string("Content-Length: -3\r\n"),
        std::string("Content-Length: 0x3\r\n"), std::string("Content-Length: \r\n"),
        std::string("Content-Length: 99999999999999999999999\r\n"), std::string("Host: y\r\n")}) {
    Client client(harness.port());
    client.send(post_with(headers, kHidden));
    const std::string all = all_of(client);
    EXPECT_THAT(all, ::testing::StartsWith("HTTP/1.1 400 ")) << headers;
    EXPECT_EQ(answers_in(all), 1u) << headers << all;
  }
  Client old(harness.port());
  old.send(post_with("Transfer-Encoding: chunked\r\n", "0\r\n\r\n" + kHidden, "1.0"));
  const std::string all = all_of(old);
  EXPECT_THAT(all, HasSubstr("transfer-encoding"));
  EXPECT_EQ(answers_in(all), 1u);
  EXPECT_EQ(harness.get("/livez").status, 200);
}

TEST(Framing, EncodedBodiesAreRefusedWhicheverHeaderSaysSo) {
  Harness harness(nothing);
  for (const char* headers :
       {"Content-Encoding: gzip\r\n", "Content-Encoding: identity\r\nContent-Encoding: br\r\n"}) {
    Client client(harness.port());
    client.send(post_with(headers + ("Content-Length: " + std::to_string(kBody.size()) + "\r\n"), kBody));
    EXPECT_EQ(client.receive().status, 415) << headers;
  }
}

TEST(Framing, EmptyLinesBeforeARequestAreSkipped) {
  Harness harness(nothing);
  Client client(harness.port());
  client.send("\r\n\r\n" + kHidden + "\r\n" + kHidden);
  EXPECT_EQ(client.receive().status, 200);
  EXPECT_EQ(client.receive().status, 200);
}

TEST(Framing, ChunkHeadsAndTrailersAreBounded) {
  HttpLimits limits;
  limits.header_bytes = 4096;
  Harness harness(nothing, limits);
  for (const std::string& body : {"5;x=" + std::string(20'000, 'a'), std::string(20'000, '0'),
                                  "0\r\n" + std::string("X-T: 1\r\n", 8) + std::string(20'000, 'a')}) {
    Client client(harness.port());
    client.send(post_with("Transfer-Encoding: chunked\r\n", body));
    EXPECT_EQ(client.receive().status, 431) << body.substr(0, 16);
  }
  std::string trailers = "0\r\n";
  for (int i = 0; i < 2000; ++i) trailers += "X-T: aaaa\r\n";
  Client client(harness.port());
  client.send(post_with("Transfer-Encoding: chunked\r\n", trailers));
  EXPECT_EQ(client.receive().status, 431);
}

// Many large bodies at once must not fill the memory, nor keep small requests out.
TEST(Framing, LargeBodiesShareABoundedRoom) {
  HttpLimits limits;
  limits.body_bytes = 1 << 20;
  limits.all_body_bytes = 5 << 19;  // two and a half of the largest
  Harness harness(nothing, limits);
  const std::string large = R"({"prompt":"a","user":")" + std::string((1 << 20) - 24, 'x') + "\"}";
  ASSERT_EQ(large.size(), 1u << 20);
  const auto status = [&](std::string_view body) { return harness.post("/v1/completions", body).status; };
  EXPECT_EQ(status(large), 200);
  const auto held = [&] { return harness.server->context().body_bytes(); };
  ASSERT_TRUE(becomes([&] { return held() == 0; }));
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 2; ++i) {  // all but the last byte
    slow.push_back(std::make_unique<Client>(harness.port()));
    const std::string whole = request_text("POST", "/v1/completions", large);
    slow.back()->send(std::string_view(whole).substr(0, whole.size() - 1));
  }
  ASSERT_TRUE(becomes([&] { return held() == 2 * (1 << 20) - 2; }));
  const Answer refused = harness.post("/v1/completions", large);
  EXPECT_EQ(refused.status, 429);
  EXPECT_FALSE(refused.header("retry-after").empty());
  EXPECT_EQ(refused.header("connection"), "close");
  EXPECT_EQ(status(kBody), 400) << "small ones always get in";
  EXPECT_EQ(status(R"({"prompt":"a"})"), 200);
  slow[0]->send("}");  // those that have begun go on
  EXPECT_EQ(slow[0]->receive().status, 200);
  slow[1]->close();
  EXPECT_TRUE(becomes([&] { return status(large) == 200; }));
}

// Each byte comes in time, the whole never does.
TEST(Framing, ABodyThatTricklesIsCutByTheTimeForAll) {
  HttpLimits limits;
  limits.body_ms = 60'000;
  limits.upload_ms = 300;
  Harness harness(nothing, limits);
  for (const bool chunked : {false, true}) {
    Client client(harness.port());
    client.send(post_with(chunked ? "Transfer-Encoding: chunked\r\n" : "Content-Length: 1000\r\n", ""));
    for (int i = 0; i < 40; ++i) {
      client.send(chunked ? "1\r\n \r\n" : " ");
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    const Answer answer = client.receive();
    EXPECT_EQ(answer.status, 408);
    EXPECT_THAT(answer.body, HasSubstr("300 ms for the whole body"));
  }
}

struct Refusal {
  std::string bytes;  // PATH stands for the target
  int status;
  std::string anthropic_type;
};

void expect_the_form_of_the_path(Harness& harness, const std::vector<Refusal>& table) {
  for (const auto& [path, anthropic] :
       {std::pair("/v1/messages", true), std::pair("/messages?beta=true", true),
        std::pair("//v1/messages/count_tokens/", true), std::pair("http://x/v1/messages", true),
        std::pair("/v1/chat/completions", false), std::pair("/", false)}) {
    for (const Refusal& row : table) {
      std::string bytes = row.bytes;
      bytes.replace(bytes.find("PATH"), 4, path);
      Client client(harness.port());
      client.send(bytes);
      const Answer answer = client.receive();
      EXPECT_EQ(answer.status, row.status) << bytes.substr(0, 80);
      const Json body = answer.json();
      const Json error = body.find("error") ? *body.find("error") : Json();
      const std::string type = error.find("type") ? std::string(error.find("type")->as_string()) : "";
      if (anthropic) {
        EXPECT_TRUE(body.find("type")) << bytes.substr(0, 80) << answer.body;
        EXPECT_EQ(type, row.anthropic_type) << bytes.substr(0, 80);
        EXPECT_EQ(body.find("request_id") ? body.find("request_id")->as_string() : "none",
                  answer.header("x-request-id"));
      } else {
        EXPECT_TRUE(error.find("param")) << bytes.substr(0, 80) << answer.body;
      }
    }
  }
}

// A client can read only errors of its own protocol, also when the request comes to no route.
TEST(Framing, RefusalsHaveTheFormOfTheRouteTheyWereMeantFor) {
  HttpLimits limits;
  limits.header_bytes = 4096;
  limits.body_bytes = 1 << 20;
  Harness harness(nothing, limits);
  const std::string head = "POST PATH HTTP/1.1\r\nHost: x\r\n";
  const std::string large(20'000, 'a');
  expect_the_form_of_the_path(
      harness, {{head + "Content-Length: 1048577\r\n\r\n", 413, "request_too_large"},
                {head + "Transfer-Encoding: chunked\r\n\r\n100001\r\n", 413, "request_too_large"},
                {head + "X-A: " + large + "\r\n\r\n", 431, "invalid_request_error"},
                {head + "X-A: " + large, 431, "invalid_request_error"},
                {head + "Transfer-Encoding: chunked\r\n\r\n0\r\nX-A: " + large, 431, "invalid_request_error"},
                {head + "Transfer-Encoding: chunked\r\n\r\nZZ\r\n", 400, "invalid_request_error"},
                {head + "Transfer-Encoding: gzip\r\n\r\n", 400, "invalid_request_error"},
                {head + "Content-Length: -1\r\n\r\n", 400, "invalid_request_error"},
                {head + "no colon\r\n\r\n", 400, "invalid_request_error"},
                {head + "Host: y\r\n\r\n", 400, "invalid_request_error"},
                {"\r\n\r\nPOST PATH HTTP/9.9\r\n\r\n", 400, "invalid_request_error"},
                {head + "Content-Encoding: br\r\nContent-Length: 1\r\n\r\n", 415, "invalid_request_error"}});
}

TEST(Framing, TimeoutsHaveTheFormOfTheRouteToo) {
  HttpLimits limits;
  limits.header_ms = limits.body_ms = 200;
  Harness harness(nothing, limits);
  const std::string head = "POST PATH HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n";
  expect_the_form_of_the_path(harness, {{head, 408, "invalid_request_error"},
                                        {head + "\r\n", 408, "invalid_request_error"},
                                        {head + "\r\n{", 408, "invalid_request_error"}});
}

TEST(Framing, TheStarIsNoRoute) {
  Harness harness(nothing);
  for (const auto& [line, status] :
       {std::pair("GET *", 404), std::pair("POST *", 404), std::pair("CONNECT x:80", 405),
        std::pair("OPTIONS *", 204), std::pair("GET http://x", 200), std::pair("GET http://x/livez", 200),
        std::pair("GET http://x/", 200)}) {
    Client client(harness.port());
    client.send(std::string(line) + " HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_EQ(client.receive().status, status) << line;
  }
}

// Paths, methods and headers are bytes and may be long; the answer that quotes them is short JSON in UTF-8.
TEST(Framing, WhatErrorsQuoteIsCutAndValid) {
  Harness harness(nothing);
  for (const std::string& line :
       {std::string("GET /v1/models/a%ff%fe HTTP/1.1\r\nHost: x\r\n"),
        std::string("GET /v1/models/a\xff\xfe HTTP/1.1\r\nHost: x\r\n"),
        "GET /" + std::string(127, 'a') + "%C3%A9b HTTP/1.1\r\nHost: x\r\n",
        "GET /" + std::string(20'000, 'a') + " HTTP/1.1\r\nHost: x\r\n",
        std::string(20'000, 'A') + " /livez HTTP/1.1\r\nHost: x\r\n",
        std::string("GET /livez HTTP/1.1\r\nHost: x\r\nContent-Encoding: \xff\r\n"),
        "GET /v1/models/" + std::string(20'000, 'a') + " HTTP/1.1\r\nHost: x\r\n"}) {
    Client client(harness.port());
    client.send(line + "\r\n");
    const Answer answer = client.receive();
    EXPECT_GE(answer.status, 400) << line.substr(0, 40);
    EXPECT_TRUE(answer.json().find("error")) << answer.body.substr(0, 300);
    EXPECT_LT(answer.body.size(), 1000u) << line.substr(0, 40);
  }
}

}  // namespace
}  // namespace godwit::server::testing
