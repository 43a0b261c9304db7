// Bytes of a connection ▶ HTTP requests. Beast's parser behind a small door, so that only one file includes
// it.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "server/http.h"

namespace godwit::server {

class RequestReader {
 public:
  RequestReader(size_t header_bytes, size_t body_bytes);
  ~RequestReader();
  RequestReader(RequestReader&&) noexcept;
  RequestReader& operator=(RequestReader&&) noexcept;

  struct Progress {
    size_t consumed = 0;           // bytes the caller drops from the front of its buffer
    bool header_done = false;      // became complete in this call
    bool expect_continue = false;  // with header_done: the client waits for "100 Continue"
    bool done = false;             // take() may be called
  };
  // Feeds what is buffered. Errors: invalid_request (not HTTP, contradicting lengths, a transfer encoding
  // other than chunked), header_too_large (also the head of a chunk, or trailers), too_large (decided on
  // Content-Length, before the body is read), unsupported_media (encoded body).
  Result<Progress> feed(std::string_view bytes);

  bool keep_alive() const;
  bool http_1_0() const;
  bool head() const;                 // a HEAD request: the answer has no body
  HttpRequest without_body() const;  // after header_done: all but the body
  HttpRequest take();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace godwit::server
