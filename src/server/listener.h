// The listening socket and the I/O threads. Each thread runs its own io_context; a connection lives on one of
// them for good, so nothing about it is ever locked.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/http.h"

namespace godwit::server {

class Listener {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    uint16_t port = 8000;              // 0: any free one
    std::string port_flag = "--port";  // what an error calls it
    int threads = 2;
    HttpLimits limits;
  };

  // Binds and starts answering at once. Errors: usage (bad address), unavailable (address in use).
  static Result<std::unique_ptr<Listener>> start(const Options& options, HttpHandlers handlers);
  ~Listener();  // stop()

  uint16_t port() const;
  int64_t connections() const;
  int64_t body_bytes() const;  // what HttpLimits::all_body_bytes bounds
  int64_t exchanges() const;   // requests whose answer is not yet sent whole

  // From now on every answer closes its connection.
  void begin_closing();
  // Ends the threads; connections that are still open are cut.
  void stop();

 private:
  struct Impl;
  explicit Listener(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace godwit::server
