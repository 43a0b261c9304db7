// A running server over the fake engine, and a raw client for it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "fake_service.h"
#include "server/server.h"

namespace godwit::server::testing {

constexpr int kPatienceMs = 60'000;

// One HTTP answer as it came.
struct Answer {
  int status = 0;
  std::string head;
  std::string body;                                 // chunks joined
  std::string header(std::string_view name) const;  // "" when missing; name in any case
  Json json() const;                                // of the body; null when it is not JSON
  std::vector<std::string> events() const;          // the data of each SSE event
};

// A TCP connection that writes and reads bytes as told.
class Client {
 public:
  explicit Client(uint16_t port, int receive_buffer = 0);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool send(std::string_view bytes);
  // Each waits as long as a loaded machine may need, unless told otherwise.
  Answer receive(int timeout_ms = kPatienceMs);  // the next answer; status 0 when none came. 1xx are skipped
  std::string receive_some(int timeout_ms = kPatienceMs);  // "" at the end or after the timeout
  bool at_end(int timeout_ms = kPatienceMs);               // the server has closed
  void finish_sending();                                   // half-close
  void close(bool reset = false);

 private:
  int fd_ = -1;
  std::string buffer_;
};

class Harness {
 public:
  explicit Harness(std::function<Script(const engine::Request&)> script, HttpLimits limits = {},
                   int64_t context = 4096, bool load = true);

  void load();  // publishes the model
  Answer get(std::string_view path);
  Answer post(std::string_view path, std::string_view body);
  uint16_t port() const { return server->port(); }
  // Ids of `text` as the tiny model's tokenizer has them, control tokens included.
  std::vector<int32_t> ids(std::string_view text) const;

  std::shared_ptr<FakeService> service;
  std::shared_ptr<ServingModel> model;
  std::unique_ptr<Server> server;
};

// Waits for `condition`; false when it did not come to hold.
bool becomes(const std::function<bool()>& condition);

std::string request_text(std::string_view method, std::string_view path, std::string_view body = {},
                         std::string_view headers = {});

}  // namespace godwit::server::testing
