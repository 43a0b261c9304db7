// Bytes of a connection ▶ HTTP requests. Beast's parser behind a small door, so that only one file includes
// it.
#pragma once

#include <memory>
#include <string>
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
  HttpRequest without_body() const;  // after header_done
  size_t body_bytes() const;         // that have arrived
  std::string take_body();           // when done
  // What is known of a request that is not read further: its header, or what `unread`, the caller's buffer,
  // says in its first line.
  HttpRequest known(std::string_view unread) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace godwit::server
