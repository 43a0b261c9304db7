// What the server's parts say to each other about one HTTP exchange: plain data, no sockets, no Beast.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace godwit::server {

class ApiKey;
class Mailbox;

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;
  std::string path;  // normalised: no query, no double or trailing slash, "%2F" and the like decoded
  Headers headers;   // names in lower case
  std::string body;
  std::string id;                    // the client's x-request-id, or one drawn here
  std::string peer;                  // address, for the log
  bool from_loopback = false;        // the peer is this machine
  bool admin_port = false;           // it came in by --admin-port
  std::shared_ptr<void> body_share;  // of the memory for bodies; given back with the request
  ApiKey* api_key = nullptr;         // the one it came with, once somebody has looked; the server's, not ours
  std::string key;                   // name of that key; empty where none is needed
  uint64_t key_salt = 0;             // keeps the prefixes of that key apart from others; 0: it need not
  int64_t received_ns = 0;           // SteadyClock, when all of it had arrived

  // Value of the first header of that (lower-case) name; empty when missing.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  Headers headers;     // besides those every answer has
  bool close = false;  // close the connection after it
};

// Whoever works on an exchange after its handler returned. Called on the connection's thread.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void on_gone() = 0;     // the client has left; nothing can be sent any more
  virtual void on_drained() = 0;  // congested() has become false
  virtual void on_silence() = 0;  // a stream has sent nothing for HttpLimits::keep_alive_comment
};

// The way back to one client. Lives as long as somebody holds it; after the client left, everything sent is
// dropped. All functions but mailbox() and gone() belong to the connection's thread.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;

  // The way to the connection's thread, from any thread. The text workers end before the I/O threads and may
  // hold writers; whoever may live longer holds the mailbox, and the writer weakly.
  virtual const std::shared_ptr<Mailbox>& mailbox() const = 0;
  virtual bool gone() const = 0;

  // Who hears of the client leaving; held until the answer has ended.
  virtual void attach(std::shared_ptr<Exchange> exchange) = 0;

  // Released when the answer has been handed over whole, or the client has left.
  virtual void hold(std::shared_ptr<void> until_answered) = 0;
  // Headers of the answer, whatever it becomes; before respond() and begin_stream().
  virtual void add_headers(const Headers& headers) = 0;

  virtual void respond(HttpResponse response) = 0;

  // A streamed answer: 200 and text/event-stream. Bytes are appended to buffer(), then flush() sends what is
  // there as one write; while a write is under way they gather for the next one.
  virtual void begin_stream() = 0;
  virtual std::string& buffer() = 0;
  virtual void flush() = 0;
  virtual void end_stream() = 0;
  // More than HttpLimits::stream_buffer bytes wait for the client: stop producing until on_drained().
  virtual bool congested() const = 0;

  // Noted when the answer is complete: what metrics and the request log call this exchange.
  virtual int status() const = 0;
};

// What a listener does with requests.
struct HttpHandlers {
  std::function<void(HttpRequest&&, const std::shared_ptr<ResponseWriter>&)> handle;
  // Asked with a request whose body is still to come, before any of it is read: an answer turns it away. What
  // it finds out stays in the request for `handle`.
  std::function<std::optional<HttpResponse>(HttpRequest&)> turn_away;
  // The answer to a request that cannot be handled (too large, not HTTP, timed out, a fault of ours); `known`
  // has as much of it as was understood, perhaps nothing.
  std::function<HttpResponse(const Error&, HttpRequest known)> refuse;
};

struct HttpLimits {
  size_t header_bytes = 32 * 1024;
  size_t body_bytes = 64u << 20;
  size_t all_body_bytes = 1u << 30;    // of all bodies above kSmallBody that arrive or wait to be prepared
  size_t stream_buffer = 64 * 1024;    // unsent bytes of one stream before the engine is paused
  size_t pipelined_bytes = 64 * 1024;  // read ahead while a request is being answered
  size_t connections = 4096;           // near it the idle ones are closed, beyond it new ones get 503
  int64_t header_ms = 10'000;          // from a request's first byte to the end of its header
  int64_t body_ms = 30'000;            // without a byte of the body
  int64_t upload_ms =
      300'000;                // from the end of the header to the end of the body, however steadily it comes
  int64_t idle_ms = 75'000;   // between requests
  int64_t write_ms = 30'000;  // without progress of a write
  int64_t keep_alive_comment_ms = 10'000;
};

std::string_view reason_phrase(int status);

// Target of a request line ▶ path as in HttpRequest::path. An absolute URL loses scheme and authority; a bad
// escape stays as it is, and so does "*".
std::string normalise_path(std::string_view target);

}  // namespace godwit::server
