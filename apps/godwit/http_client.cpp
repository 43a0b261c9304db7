#include "http_client.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

namespace godwit {
namespace {

namespace http = boost::beast::http;
constexpr int kSilenceMs = 600'000;  // a long prompt may be silent for minutes before the first token

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  int fd() const { return fd_; }

 private:
  int fd_;
};

Result<Socket> connect_to(const ServerAddress& server) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code = getaddrinfo(server.host.c_str(), server.port.c_str(), &hints, &found); code != 0) {
    return make_error(ErrorCode::unavailable, "--url", "cannot look up {}: {}", server.host,
                      gai_strerror(code));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  int last = 0;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    Socket socket(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol));
    if (socket.fd() >= 0 && ::connect(socket.fd(), a->ai_addr, a->ai_addrlen) == 0) return socket;
    last = errno;
  }
  return make_error(ErrorCode::unavailable, "--url",
                    "nothing answers at {}:{} ({}); is `godwit serve` running?", server.host, server.port,
                    std::strerror(last));
}

Result<void> send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      return make_error(ErrorCode::unavailable, "", "the connection was lost while sending: {}",
                        std::strerror(errno));
    }
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return {};
}

std::string request_text(const ServerAddress& server, std::string_view target, const std::string& body) {
  const bool ipv6 = server.host.find(':') != std::string::npos;
  std::string text = fmt::format("{} {} HTTP/1.1\r\nHost: {}{}{}:{}\r\nConnection: close\r\nAccept: */*\r\n",
                                 body.empty() ? "GET" : "POST", target, ipv6 ? "[" : "", server.host,
                                 ipv6 ? "]" : "", server.port);
  if (!body.empty())
    text += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  return text + "\r\n" + body;
}

}  // namespace

Result<ServerAddress> parse_server_url(std::string_view url) {
  const std::string given(url);
  const auto bad = [&](std::string_view why) {
    return make_error(ErrorCode::usage, "--url", "\"{}\" {}; an example: http://127.0.0.1:8000", given, why);
  };
  if (url.starts_with("https://")) return bad("needs TLS, which this client does not speak");
  if (url.starts_with("http://")) url.remove_prefix(7);
  while (url.ends_with('/')) url.remove_suffix(1);
  if (url.ends_with("/v1")) url.remove_suffix(3);
  if (url.find('/') != std::string_view::npos) return bad("has a path");

  ServerAddress server{std::string(url), "8000"};
  const size_t bracket = url.rfind(']');
  const size_t colon = url.rfind(':');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    server.host = url.substr(0, colon);
    server.port = url.substr(colon + 1);
  }
  if (server.host.starts_with('[') && server.host.ends_with(']')) {
    server.host = server.host.substr(1, server.host.size() - 2);
  }
  uint16_t port = 0;
  const char* end = server.port.data() + server.port.size();
  const auto parsed = std::from_chars(server.port.data(), end, port);
  if (parsed.ec != std::errc() || parsed.ptr != end || port == 0) return bad("has no port from 1 to 65535");
  if (server.host.empty()) return bad("has no host");
  return server;
}

Result<HttpReply> http_request(const ServerAddress& server, std::string_view target, const std::string& body,
                               const InterruptScope& interrupts,
                               const std::function<void(std::string_view)>& on_data) {
  GODWIT_ASSIGN(const Socket socket, connect_to(server));
  GODWIT_TRY(send_all(socket.fd(), request_text(server, target, body)));

  HttpReply reply;
  http::response_parser<http::string_body> parser;
  parser.eager(true);
  parser.body_limit(boost::none);
  std::string pending;  // received, not yet taken by the parser
  std::array<char, 16384> buffer;
  while (!parser.is_done()) {
    using Wait = InterruptScope::Wait;
    const Wait wait = interrupts.wait_readable(socket.fd(), kSilenceMs);
    if (wait == Wait::interrupted) {
      reply.interrupted = true;
      return reply;
    }
    if (wait == Wait::timed_out) {
      return make_error(ErrorCode::unavailable, "", "the server sent nothing for {} s", kSilenceMs / 1000);
    }
    const ssize_t got = ::recv(socket.fd(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    boost::system::error_code error;
    if (got > 0) {
      pending.append(buffer.data(), static_cast<size_t>(got));
      pending.erase(0, parser.put(boost::asio::buffer(pending), error));
      if (error == http::error::need_more) error = {};
    } else if (parser.got_some()) {  // Beast asserts this
      parser.put_eof(error);
    }
    if (error || (got <= 0 && !parser.is_done())) {
      return make_error(ErrorCode::unavailable, "", "the connection ended in the middle of a reply{}{}",
                        error ? ": " : "", error ? error.message() : "");
    }
    if (!parser.is_header_done()) continue;
    reply.status = parser.get().result_int();
    if (on_data && reply.status == 200) {
      const std::string data = std::exchange(parser.get().body(), {});
      if (!data.empty()) on_data(data);
    }
  }
  reply.body = std::move(parser.get().body());
  return reply;
}

}  // namespace godwit
