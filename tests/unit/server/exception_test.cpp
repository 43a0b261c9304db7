// An exception anywhere on a request's way (out of memory, a bug of ours) costs that request a 500, never a
// client that waits for ever, and never another request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "harness.h"

namespace godwit::server::testing {
namespace {

const std::string kBody = R"({"messages":[{"role":"user","content":"Hi"}]})";
const std::string kStream = R"({"stream":true,"messages":[{"role":"user","content":"Hi"}]})";

void expect_one_failure(Harness& harness, std::string_view path, std::string_view body) {
  const Answer answer = harness.post(path, body);
  EXPECT_EQ(answer.status, 500);
  EXPECT_THAT(answer.body, ::testing::HasSubstr("server_error"));
  EXPECT_EQ(harness.get("/livez").status, 200);
}

TEST(Exceptions, WhileSubmitting) {
  Harness harness([](const engine::Request&) -> Script { throw std::runtime_error("scripted"); });
  expect_one_failure(harness, "/v1/chat/completions", kBody);
  expect_one_failure(harness, "/v1/chat/completions", kStream);
  expect_one_failure(harness, "/v1/completions", R"({"prompt":"a"})");
}

class ThrowingInfo final : public engine::Service {
 public:
  Result<void> submit(engine::Request) override { return {}; }
  const engine::Info& info() const override { throw std::bad_alloc(); }
  engine::Status status() const override {
    engine::Status status;
    status.health = engine::Health::ready;
    return status;
  }
  void drain(int64_t) override {}
  void flush_cache(std::function<void(const Result<engine::Flushed>&)> done) override {
    done(engine::Flushed{});
  }
};

TEST(Exceptions, OnATextWorkerAndInAHandler) {
  Harness harness([](const engine::Request&) { return Script{}; });
  auto broken = std::make_shared<ServingModel>(*harness.model);
  broken->service = std::make_shared<ThrowingInfo>();
  harness.server->set_model(broken);
  expect_one_failure(harness, "/v1/chat/completions", kBody);
  expect_one_failure(harness, "/v1/completions", R"({"prompt":"a"})");
  expect_one_failure(harness, "/tokenize", R"({"prompt":"a"})");
  const Answer models = harness.get("/v1/models");
  EXPECT_EQ(models.status, 500);
  harness.server->set_model(harness.model);
  EXPECT_EQ(harness.post("/v1/chat/completions", kBody).status, 200);
}

}  // namespace
}  // namespace godwit::server::testing
