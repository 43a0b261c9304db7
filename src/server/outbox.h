// What waits to be sent on a connection and what is being sent, with its framing. No sockets.
//
// Two sets of buffers: while one is being written the other gathers, so a slow client costs memory, not
// waiting.
#pragma once

#include <array>
#include <boost/asio/buffer.hpp>
#include <cstddef>
#include <string>

namespace godwit::server {

class Outbox {
 public:
  using Parts = std::array<boost::asio::const_buffer, 6>;

  std::string& head() { return head_; }        // bytes as they are: heads, interim answers
  std::string& payload() { return payload_; }  // a stream's bytes; each take() makes one chunk of them
  void set_body(std::string body) { body_ = std::move(body); }  // of an answer whose length its head says
  void add_last_chunk() { last_chunk_ = true; }
  void drop_payload() { payload_.clear(); }

  bool waiting() const { return !head_.empty() || !body_.empty() || !payload_.empty() || last_chunk_; }
  size_t stream_bytes() const { return payload_.size() + writing_payload_.size(); }  // unsent

  // Everything that waits becomes what is being written; needs waiting() and that the last write has ended
  // with written(). The parts stay valid until then.
  Parts take(bool chunked);
  void written();

 private:
  std::string head_;
  std::string body_;
  std::string payload_;
  bool last_chunk_ = false;
  std::string writing_head_;
  std::string writing_body_;
  std::string writing_payload_;
  char chunk_size_[24];
};

}  // namespace godwit::server
