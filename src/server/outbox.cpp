#include "server/outbox.h"

#include <fmt/format.h>

namespace godwit::server {
namespace asio = boost::asio;
namespace {

constexpr size_t kKeptCapacity = 256 * 1024;  // a buffer that once grew beyond this is given back

}  // namespace

Outbox::Parts Outbox::take(bool chunked) {
  writing_head_.swap(head_);
  writing_body_.swap(body_);
  writing_payload_.swap(payload_);
  Parts parts;
  parts[0] = asio::buffer(writing_head_);
  parts[1] = asio::buffer(writing_body_);
  if (chunked && !writing_payload_.empty()) {
    char* end = fmt::format_to(chunk_size_, "{:x}\r\n", writing_payload_.size());
    parts[2] = asio::buffer(chunk_size_, static_cast<size_t>(end - chunk_size_));
    parts[4] = asio::buffer("\r\n", 2);
  }
  parts[3] = asio::buffer(writing_payload_);
  if (chunked && last_chunk_) parts[5] = asio::buffer("0\r\n\r\n", 5);
  last_chunk_ = false;
  return parts;
}

void Outbox::written() {
  for (std::string* buffer : {&writing_head_, &writing_body_, &writing_payload_}) {
    buffer->clear();
    if (buffer->capacity() > kKeptCapacity) buffer->shrink_to_fit();
  }
}

}  // namespace godwit::server
