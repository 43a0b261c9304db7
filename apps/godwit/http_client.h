// The smallest HTTP client that can follow a stream: plain HTTP/1.1, one connection a request.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "interrupt.h"

namespace godwit {

struct ServerAddress {
  std::string host;  // as in the Host header and for look-up, IPv6 without brackets
  std::string port;
};

// "http://host[:port][/v1][/]". Errors (usage): https, no host, a bad port.
Result<ServerAddress> parse_server_url(std::string_view url);

struct HttpReply {
  int status = 0;
  std::string body;          // of a reply that is not 200, or when no on_data was given
  bool interrupted = false;  // Ctrl-C: the connection was closed, which cancels the request on the server
};

// GET when `body` is empty, else POST of JSON. With on_data, a 200 body is handed over piece by piece as it
// arrives. Errors (unavailable): not reachable, connection lost, no byte for ten minutes, not HTTP.
Result<HttpReply> http_request(const ServerAddress& server, std::string_view target, const std::string& body,
                               const InterruptScope& interrupts,
                               const std::function<void(std::string_view)>& on_data = {});

}  // namespace godwit
