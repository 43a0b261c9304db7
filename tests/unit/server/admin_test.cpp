// Admin routes: what they do, and for whom (design §12).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>

#include "harness.h"
#include "server/mailbox.h"
#include "server/routes/route_table.h"

namespace godwit::server::testing {
namespace {

using ::testing::HasSubstr;

Script nothing(const engine::Request&) {
  return {};
}

// Keeps the one answer of an exchange.
class KeepingWriter final : public ResponseWriter {
 public:
  const std::shared_ptr<Mailbox>& mailbox() const override { return mailbox_; }
  bool gone() const override { return false; }
  void attach(std::shared_ptr<Exchange>) override {}
  void hold(std::shared_ptr<void>) override {}
  void add_headers(const Headers&) override {}
  void respond(HttpResponse response) override { answer = std::move(response); }
  void begin_stream() override {}
  std::string& buffer() override { return unused_; }
  void flush() override {}
  void end_stream() override {}
  bool congested() const override { return false; }
  int status() const override { return answer.status; }

  void run_posted() { context_.run(); }

  HttpResponse answer;

 private:
  boost::asio::io_context context_;
  std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>(context_);
  std::string unused_;
};

HttpResponse flush_from(Harness& harness, bool from_loopback, bool admin_port, Headers headers = {}) {
  HttpRequest request;
  request.method = "POST";
  request.path = "/flush_cache";
  request.headers = std::move(headers);
  request.peer = from_loopback ? "127.0.0.1" : "192.0.2.7";
  request.from_loopback = from_loopback;
  request.admin_port = admin_port;
  const auto writer = std::make_shared<KeepingWriter>();
  dispatch(harness.server->context(), std::move(request), writer);
  writer->run_posted();
  return writer->answer;
}

TEST(Admin, FlushCacheSaysWhatItFreed) {
  Harness harness(nothing);
  const Answer answer = harness.post("/flush_cache", "");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, R"({"pages":7,"snapshots":2,"host_pages":5,"host_snapshots":1,"host_bytes":640})");
  EXPECT_EQ(harness.service->flushes_.load(), 1);
  EXPECT_EQ(harness.get("/flush_cache").status, 405);
  harness.service->health_ = engine::Health::dead;
  EXPECT_EQ(harness.post("/flush_cache", "").status, 503);
}

TEST(Admin, FlushCacheWhileLoadingIs503) {
  Harness harness(nothing, {}, 4096, false);
  EXPECT_EQ(harness.post("/flush_cache", "").status, 503);
  EXPECT_EQ(harness.service->flushes_.load(), 0);
}

TEST(Admin, WithoutAnAdminPortOnlyThisMachineMay) {
  Harness harness(nothing);
  const HttpResponse refused = flush_from(harness, false, false);
  EXPECT_EQ(refused.status, 403);
  EXPECT_THAT(refused.body, HasSubstr("192.0.2.7"));
  EXPECT_THAT(refused.body, HasSubstr("--admin-port"));
  EXPECT_EQ(flush_from(harness, true, false, {{"origin", "http://elsewhere.example"}}).status, 403);
  EXPECT_EQ(harness.service->flushes_.load(), 0);
  EXPECT_EQ(flush_from(harness, true, false).status, 200);
  EXPECT_EQ(harness.service->flushes_.load(), 1);
}

TEST(Admin, WithAnAdminPortTheyAreThereAndNowhereElse) {
  Harness harness(nothing);
  ServerOptions options;
  options.http.port = 0;
  options.admin_port = 0;
  const auto started = Server::start(options);
  ASSERT_TRUE(started.ok()) << started.error().message;
  Server& server = **started;
  server.set_model(harness.model);
  ASSERT_NE(server.admin_port(), server.port());
  const auto ask = [](uint16_t port, std::string_view method, std::string_view path) {
    Client client(port);
    client.send(request_text(method, path));
    return client.receive();
  };
  const Answer refused = ask(server.port(), "POST", "/flush_cache");
  EXPECT_EQ(refused.status, 403);
  EXPECT_THAT(refused.body, HasSubstr("--admin-port"));
  EXPECT_EQ(harness.service->flushes_.load(), 0);
  EXPECT_EQ(ask(server.admin_port(), "POST", "/flush_cache").status, 200);
  EXPECT_EQ(harness.service->flushes_.load(), 1);
  // Nothing but admin routes: no generation, no page, no probe.
  for (const char* path : {"/v1/models", "/", "/livez", "/metrics"})
    EXPECT_EQ(ask(server.admin_port(), "GET", path).status, 404) << path;
}

TEST(Admin, APortThatIsTakenIsNamedByItsFlag) {
  Harness harness(nothing);
  ServerOptions options;
  options.http.port = 0;
  options.admin_port = harness.port();
  const auto started = Server::start(options);
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().field, "--admin-port");
}

}  // namespace
}  // namespace godwit::server::testing
