#include "server/request_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <iterator>

#include "server/request_id.h"

namespace godwit::server {
namespace http = boost::beast::http;

struct RequestReader::Impl {
  http::request_parser<http::string_body> parser;
  size_t header_bytes = 0;
  size_t body_bytes = 0;
  bool header_reported = false;
};

namespace {

// Lengths that two readers could understand differently are refused, also where one reading is right: what a
// proxy in front took for a body must never become a request here (RFC 9112 §6.3, §11.2).
Result<void> check_framing(const http::request<http::string_body>& message) {
  const auto [first, last] = message.equal_range(http::field::transfer_encoding);
  if (first != last) {
    const bool plain = std::next(first) == last && boost::beast::iequals(first->value(), "chunked");
    if (!plain) {
      return make_error(ErrorCode::invalid_request, "transfer-encoding",
                        "the only transfer encoding is 'chunked', got '{}'",
                        std::string_view(std::prev(last)->value()));
    }
    if (message.version() < 11) {
      return make_error(ErrorCode::invalid_request, "transfer-encoding",
                        "HTTP/1.0 has no transfer encodings");
    }
  }
  if (message.version() >= 11 && message.count(http::field::host) != 1) {
    return make_error(ErrorCode::invalid_request, "host", "an HTTP/1.1 request needs one Host header, got {}",
                      message.count(http::field::host));
  }
  const auto encodings = message.equal_range(http::field::content_encoding);
  for (auto it = encodings.first; it != encodings.second; ++it) {
    if (it->value().empty() || it->value() == "identity") continue;
    return make_error(ErrorCode::unsupported_media, "content-encoding",
                      "request bodies must not be encoded, got '{}'", std::string_view(it->value()));
  }
  return {};
}

Error refuse(boost::beast::error_code ec, size_t header_bytes, size_t body_bytes) {
  if (ec == http::error::header_limit) {
    return make_error(ErrorCode::header_too_large, "",
                      "request line and headers exceed the limit of {} bytes", header_bytes);
  }
  if (ec == http::error::body_limit) {
    return make_error(ErrorCode::too_large, "", "request body exceeds the limit of {} bytes", body_bytes);
  }
  return make_error(ErrorCode::invalid_request, "", "not a valid HTTP/1.1 request: {}", ec.message());
}

}  // namespace

RequestReader::RequestReader(size_t header_bytes, size_t body_bytes) : impl_(std::make_unique<Impl>()) {
  impl_->header_bytes = header_bytes;
  impl_->body_bytes = body_bytes;
  impl_->parser.header_limit(static_cast<uint32_t>(header_bytes));
  impl_->parser.body_limit(body_bytes);
}
RequestReader::~RequestReader() = default;
RequestReader::RequestReader(RequestReader&&) noexcept = default;
RequestReader& RequestReader::operator=(RequestReader&&) noexcept = default;

Result<RequestReader::Progress> RequestReader::feed(std::string_view bytes) {
  Progress progress;
  auto& parser = impl_->parser;
  // Empty lines before a request: some clients end a body with one (RFC 9112 §2.2).
  while (!parser.got_some() && bytes.substr(progress.consumed).starts_with("\r\n")) progress.consumed += 2;
  while (!parser.is_done() && progress.consumed < bytes.size()) {
    boost::beast::error_code ec;
    const auto rest = bytes.substr(progress.consumed);
    const size_t n = parser.put(boost::asio::buffer(rest.data(), rest.size()), ec);
    progress.consumed += n;
    if (ec == http::error::need_more) break;
    if (ec) return refuse(ec, impl_->header_bytes, impl_->body_bytes);
    if (n == 0) break;
  }
  if (parser.is_header_done() && !impl_->header_reported) {
    impl_->header_reported = true;
    progress.header_done = true;
    const auto& message = parser.get();
    if (auto framing = check_framing(message); !framing) return std::move(framing).error();
    progress.expect_continue =
        boost::beast::iequals(message[http::field::expect], "100-continue") && !parser.is_done();
  }
  progress.done = parser.is_done();
  // Bodies are consumed as they come: what is left is the head of a chunk or trailers, and Beast would wait
  // for their end for ever.
  if (parser.is_header_done() && !progress.done && bytes.size() - progress.consumed > impl_->header_bytes) {
    return make_error(ErrorCode::header_too_large, "",
                      "the head of a chunk or the trailers exceed the limit of {} bytes",
                      impl_->header_bytes);
  }
  return progress;
}

bool RequestReader::keep_alive() const {
  return impl_->parser.get().keep_alive();
}
bool RequestReader::http_1_0() const {
  return impl_->parser.get().version() < 11;
}

HttpRequest RequestReader::without_body() const {
  const auto& message = impl_->parser.get();
  HttpRequest out;
  out.method = std::string(message.method_string());
  out.path = normalise_path(std::string_view(message.target()));
  for (const auto& field : message) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); });
    out.headers.emplace_back(std::move(name), std::string(field.value()));
  }
  out.id = request_id_of(out.header("x-request-id"));
  return out;
}

size_t RequestReader::body_bytes() const {
  return impl_->parser.get().body().size();
}

std::string RequestReader::take_body() {
  return std::move(impl_->parser.get().body());
}

HttpRequest RequestReader::known(std::string_view unread) const {
  if (!impl_->parser.get().target().empty()) return without_body();
  // Beast parses nothing of a header before it has all of it.
  unread.remove_prefix(std::min(unread.size(), unread.find_first_not_of("\r\n")));
  std::string_view line = unread.substr(0, unread.find_first_of("\r\n"));
  HttpRequest out;
  out.method = std::string(line.substr(0, line.find(' ')));
  line.remove_prefix(std::min(line.size(), out.method.size() + 1));
  out.path = normalise_path(line.substr(0, line.find(' ')));
  out.id = request_id_of("");
  return out;
}

}  // namespace godwit::server
