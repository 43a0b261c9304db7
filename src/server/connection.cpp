#include "server/connection.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "server/caught.h"
#include "server/outbox.h"
#include "server/request_reader.h"
#include "server/response_head.h"

namespace godwit::server {
namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int64_t kMs = 1'000'000;
constexpr size_t kReadBytes = 64 * 1024;
constexpr int64_t kLingerMs = 2'000;
constexpr size_t kLingerBytes = 16u << 20;

int64_t now_ns() {
  return SteadyClock().now_ns();
}

// Also where IPv4 arrives on an IPv6 socket.
bool is_loopback(const asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).is_loopback();
  return address.is_loopback();
}

// Bodies up to here always find room: large ones cannot keep small ones out.
constexpr size_t kSmallBody = 64 * 1024;

// What one body has of ConnectionHost::body_bytes.
class BodyShare {
 public:
  explicit BodyShare(std::shared_ptr<ConnectionHost> host) : host_(std::move(host)) {}
  ~BodyShare() { host_->body_bytes.fetch_sub(bytes_); }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;

  // Returns what all bodies have with it.
  int64_t grow_to(int64_t bytes) {
    const int64_t more = bytes - std::exchange(bytes_, bytes);
    return host_->body_bytes.fetch_add(more) + more;
  }

 private:
  const std::shared_ptr<ConnectionHost> host_;
  int64_t bytes_ = 0;
};

class Connection final : public ResponseWriter,
                         public IoThread::Resident,
                         public std::enable_shared_from_this<Connection> {
 public:
  Connection(IoThread& thread, asio::ip::tcp::socket socket, std::shared_ptr<ConnectionHost> host)
      : thread_(thread),
        socket_(std::move(socket)),
        timer_(thread.context()),
        host_(std::move(host)),
        reader_(host_->limits.header_bytes, host_->limits.body_bytes) {
    host_->connections.fetch_add(1);
  }
  ~Connection() override { host_->connections.fetch_sub(1); }

  void start() {
    thread_.enter(this);
    error_code ignored;
    socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
    socket_.non_blocking(true, ignored);
    const auto peer = socket_.remote_endpoint(ignored);
    peer_ = ignored ? "?" : peer.address().to_string();
    from_loopback_ = !ignored && is_loopback(peer.address());
    idle_since_ = now_ns();
    set_read_deadline(host_->limits.idle_ms);
    read();
  }

  // ResponseWriter
  const std::shared_ptr<Mailbox>& mailbox() const override { return thread_.mailbox(); }
  bool gone() const override { return gone_; }
  void attach(std::shared_ptr<Exchange> exchange) override {
    if (!gone_) exchange_ = std::move(exchange);
  }
  void hold(std::shared_ptr<void> until_answered) override {
    if (!gone_) held_ = std::move(until_answered);
  }
  void add_headers(const Headers& headers) override {
    added_headers_.insert(added_headers_.end(), headers.begin(), headers.end());
  }
  void respond(HttpResponse response) override;
  void begin_stream() override;
  std::string& buffer() override { return out_.payload(); }
  void flush() override;
  void end_stream() override;
  bool congested() const override { return out_.stream_bytes() > host_->limits.stream_buffer; }
  int status() const override { return status_; }

  // IoThread::Resident
  void cut() override { client_gone(); }
  int64_t idle_since() const override {
    const bool idle = state_ == State::lingering || (state_ == State::reading && !body_phase_ && in_.empty());
    return idle ? idle_since_ : kBusy;
  }

 private:
  enum class State : uint8_t { reading, answering, lingering, closed };

  void read();
  void on_read(const error_code& ec, size_t bytes);
  void feed();
  void await_body();
  Result<void> account_body();
  void enter_answering();
  void refuse(const Error& error);
  void refuse(HttpResponse response);
  void describe(HttpRequest& request);
  Error timed_out(int64_t now) const;
  void on_client_eof();
  void client_gone();
  bool send_now(Outbox::Parts& parts);
  void on_written(const error_code& ec);
  void finish_exchange();
  void close();
  void append_head(const HttpResponse& response, bool streamed);

  void set_read_deadline(int64_t ms) { arm(read_deadline_, ms); }
  void arm(int64_t& deadline, int64_t ms) {
    deadline = now_ns() + ms * kMs;
    arm_timer();
  }
  void arm_timer();
  void on_timer();

  IoThread& thread_;
  asio::ip::tcp::socket socket_;
  asio::steady_timer timer_;
  std::shared_ptr<ConnectionHost> host_;
  std::string peer_;
  bool from_loopback_ = false;

  State state_ = State::reading;
  RequestReader reader_;
  HttpRequest request_;  // without its body, while that arrives
  std::shared_ptr<BodyShare> body_share_;
  std::string in_;  // received, not yet parsed
  std::array<char, 4096> small_read_;
  std::string read_buffer_;  // only while a body arrives: 4096 bytes at a time would be slow there
  bool read_pending_ = false;
  bool peer_eof_ = false;
  bool body_phase_ = false;
  size_t lingered_ = 0;

  std::shared_ptr<Exchange> exchange_;
  std::shared_ptr<void> held_;
  Headers added_headers_;
  std::string request_id_;
  int64_t received_ns_ = 0;
  int64_t idle_since_ = 0;  // the connection's beginning, or the end of its last answer
  int status_ = 0;
  bool head_ = false;
  bool http_1_0_ = false;
  bool close_after_ = false;
  bool streaming_ = false;
  bool answered_ = false;  // the whole answer has been handed over
  std::atomic<bool> gone_{false};

  Outbox out_;
  bool writing_ = false;

  int64_t read_deadline_ = kNever;
  int64_t upload_deadline_ = kNever;  // of the whole body; only while one arrives
  int64_t write_deadline_ = kNever;
  int64_t comment_deadline_ = kNever;
  int64_t armed_ = kNever;
};

// ---- reading

void Connection::read() {
  if (read_pending_ || peer_eof_ || state_ == State::closed) return;
  if (state_ == State::answering && in_.size() > host_->limits.pipelined_bytes) return;
  read_pending_ = true;
  if (body_phase_ && read_buffer_.empty()) read_buffer_.resize(kReadBytes);
  const auto target = body_phase_ ? asio::buffer(read_buffer_.data(), read_buffer_.size())
                                  : asio::buffer(small_read_.data(), small_read_.size());
  char* const data = static_cast<char*>(target.data());
  auto self = shared_from_this();
  socket_.async_read_some(target, [self, data](const error_code& ec, size_t bytes) {
    self->read_pending_ = false;
    if (self->state_ != State::lingering) self->in_.append(data, bytes);
    self->on_read(ec, bytes);
  });
}

void Connection::on_read(const error_code& ec, size_t bytes) {
  if (state_ == State::closed) return;
  if (ec == asio::error::eof) {
    peer_eof_ = true;
    if (state_ == State::answering) return on_client_eof();
    return close();
  }
  if (ec) return client_gone();
  if (state_ == State::lingering) {
    lingered_ += bytes;
    if (lingered_ > kLingerBytes) return close();
  } else if (state_ == State::reading) {
    if (body_phase_) await_body();
    feed();
  }
  read();
}

void Connection::feed() {
  if (in_.empty()) return;
  auto fed = reader_.feed(in_);
  if (!fed) return refuse(fed.error());
  in_.erase(0, fed->consumed);
  if (auto room = account_body(); !room) return refuse(room.error());
  if (fed->header_done) {
    request_ = reader_.without_body();
    describe(request_);
  }
  if (fed->header_done && !fed->done) {
    if (auto answer = host_->handlers.turn_away(request_)) return refuse(std::move(*answer));
    body_phase_ = true;
    upload_deadline_ = now_ns() + host_->limits.upload_ms * kMs;
    await_body();
    if (fed->expect_continue) {
      out_.head() += "HTTP/1.1 100 Continue\r\n\r\n";
      flush();
    }
  } else if (!body_phase_ && read_deadline_ > now_ns() + host_->limits.header_ms * kMs) {
    set_read_deadline(host_->limits.header_ms);
  }
  if (!fed->done) return;

  http_1_0_ = reader_.http_1_0();
  close_after_ = !reader_.keep_alive() || host_->closing.load();
  request_.body = reader_.take_body();
  request_.body_share = std::move(body_share_);
  request_.received_ns = received_ns_ = now_ns();
  body_phase_ = false;
  read_buffer_ = std::string();
  enter_answering();
  const auto handled = caught([&]() -> Result<void> {
    host_->handlers.handle(std::exchange(request_, {}), shared_from_this());
    return {};
  });
  if (!handled) respond(host_->handlers.refuse(handled.error(), reader_.without_body()));
}

void Connection::await_body() {
  read_deadline_ = std::min(now_ns() + host_->limits.body_ms * kMs, upload_deadline_);
  arm_timer();
}

Result<void> Connection::account_body() {
  const size_t bytes = reader_.body_bytes();
  if (bytes <= kSmallBody) return {};
  if (!body_share_) body_share_ = std::make_shared<BodyShare>(host_);
  const auto most = static_cast<int64_t>(std::max(host_->limits.all_body_bytes, host_->limits.body_bytes));
  if (body_share_->grow_to(static_cast<int64_t>(bytes)) <= most) return {};
  return make_error(
      ErrorCode::overloaded, "",
      "the request bodies that arrive or wait have {} bytes in all, which is the limit; try again in "
      "a moment",
      most);
}

void Connection::enter_answering() {
  state_ = State::answering;
  read_deadline_ = kNever;
  host_->exchanges.fetch_add(1);
}

// What the reader does not know of a request, and what its answer needs of it.
void Connection::describe(HttpRequest& request) {
  request.peer = peer_;
  request.from_loopback = from_loopback_;
  received_ns_ = now_ns();
  request_id_ = request.id;
  head_ = request.method == "HEAD";
}

void Connection::refuse(const Error& error) {
  HttpRequest known = reader_.known(in_);
  describe(known);
  refuse(host_->handlers.refuse(error, std::move(known)));
}

// The rest of the request is not read.
void Connection::refuse(HttpResponse response) {
  enter_answering();
  in_.clear();
  reader_ = RequestReader(host_->limits.header_bytes, host_->limits.body_bytes);
  body_share_.reset();
  response.close = true;
  respond(std::move(response));
}

// The client will send nothing more. It may still be reading (a half-closed socket) or have gone; only a
// write tells: to a closed socket it provokes a reset.
void Connection::on_client_eof() {
  close_after_ = true;
  if (answered_) return;
  if (streaming_) {
    out_.payload() += ":\n\n";
  } else if (http_1_0_) {
    return client_gone();  // 1.0 knows no interim answer
  } else {
    out_.head() += "HTTP/1.1 100 Continue\r\n\r\n";
  }
  flush();
  auto self = shared_from_this();
  socket_.async_wait(asio::ip::tcp::socket::wait_error, [self](const error_code& ec) {
    if (!ec && self->state_ == State::answering) self->client_gone();
  });
}

// ---- writing

void Connection::append_head(const HttpResponse& response, bool streamed) {
  append_response_head(out_.head(), response,
                       {.request_id = request_id_,
                        .added_headers = added_headers_,
                        .processing_ms = (now_ns() - received_ns_) / kMs,
                        .http_1_0 = http_1_0_,
                        .close = close_after_,
                        .streamed = streamed});
}

void Connection::respond(HttpResponse response) {
  if (gone_ || state_ != State::answering || answered_) return;
  close_after_ = close_after_ || response.close || host_->closing.load();
  status_ = response.status;
  answered_ = true;
  held_.reset();  // before the client can know: its next request must not find its own share taken
  append_head(response, false);
  if (!head_) out_.set_body(std::move(response.body));
  flush();
}

void Connection::begin_stream() {
  if (gone_ || state_ != State::answering || answered_) return;
  if (http_1_0_) close_after_ = true;
  status_ = 200;
  streaming_ = true;
  append_head(HttpResponse(), true);
  arm(comment_deadline_, host_->limits.keep_alive_comment_ms);
}

void Connection::end_stream() {
  if (gone_ || !streaming_ || answered_) return;
  answered_ = true;
  held_.reset();
  out_.add_last_chunk();
  comment_deadline_ = kNever;
  flush();
}

void Connection::flush() {
  if (gone_) return out_.drop_payload();
  if (writing_ || !out_.waiting()) return;
  writing_ = true;
  Outbox::Parts parts = out_.take(!http_1_0_);
  if (streaming_ && !answered_) {
    comment_deadline_ = now_ns() + host_->limits.keep_alive_comment_ms * kMs;
    // A chunk mostly fits the socket's buffer: sent here, it costs no turn of the event loop. Only chunks:
    // the end of an answer may start the next request, which must not run inside this one.
    if (send_now(parts)) {
      out_.written();
      writing_ = false;
      return;
    }
  }
  write_deadline_ = now_ns() + host_->limits.write_ms * kMs;
  arm_timer();
  auto self = shared_from_this();
  asio::async_write(socket_, parts, [self](const error_code& ec, size_t) { self->on_written(ec); });
}

// True when all of `parts` has been taken by the socket; else they become what is left. Errors show again in
// the write that follows.
bool Connection::send_now(Outbox::Parts& parts) {
  error_code ec;
  size_t sent = socket_.write_some(parts, ec);
  if (ec) return false;
  bool all = true;
  for (asio::const_buffer& part : parts) {
    const size_t step = std::min(sent, part.size());
    part += step;
    sent -= step;
    all = all && part.size() == 0;
  }
  return all;
}

void Connection::on_written(const error_code& ec) {
  writing_ = false;
  write_deadline_ = kNever;
  if (state_ == State::closed) return;
  if (ec) return client_gone();
  const bool was_congested = congested();
  out_.written();
  flush();
  if (writing_) return;
  if (answered_ && state_ == State::answering) return finish_exchange();
  if (was_congested && !congested() && exchange_) {
    const auto exchange = exchange_;
    exchange->on_drained();
  }
}

void Connection::finish_exchange() {
  host_->exchanges.fetch_sub(1);
  idle_since_ = now_ns();
  exchange_.reset();
  added_headers_.clear();
  streaming_ = answered_ = false;
  status_ = 0;
  request_id_.clear();
  if (close_after_ || host_->closing.load()) {
    state_ = State::lingering;
    // Bytes that still arrive are read and dropped for a moment: closing over them would reset the connection
    // and could take the answer away from the client.
    if (peer_eof_) return close();
    error_code ignored;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    set_read_deadline(kLingerMs);
    return read();
  }
  state_ = State::reading;
  reader_ = RequestReader(host_->limits.header_bytes, host_->limits.body_bytes);
  set_read_deadline(host_->limits.idle_ms);
  feed();
  read();
}

// ---- endings

void Connection::client_gone() {
  if (state_ == State::closed) return;
  const auto exchange = std::move(exchange_);
  exchange_.reset();
  close();
  if (exchange) exchange->on_gone();
}

void Connection::close() {
  if (state_ == State::closed) return;
  if (state_ == State::answering) host_->exchanges.fetch_sub(1);
  state_ = State::closed;
  gone_ = true;
  held_.reset();
  thread_.leave(this);
  timer_.cancel();
  error_code ignored;
  socket_.close(ignored);
}

void Connection::arm_timer() {
  const int64_t next = std::min({read_deadline_, write_deadline_, comment_deadline_});
  if (next >= armed_ || state_ == State::closed) return;  // a later deadline is seen when the timer fires
  armed_ = next;
  timer_.expires_at(std::chrono::steady_clock::time_point(std::chrono::nanoseconds(next)));
  auto self = shared_from_this();
  timer_.async_wait([self](const error_code& ec) {
    if (ec) return;  // replaced by an earlier deadline, or closed
    self->armed_ = kNever;
    self->on_timer();
  });
}

Error Connection::timed_out(int64_t now) const {
  const HttpLimits& limits = host_->limits;
  const auto [ms, what] = !body_phase_              ? std::pair(limits.header_ms, "the header")
                          : now >= upload_deadline_ ? std::pair(limits.upload_ms, "the whole body")
                                                    : std::pair(limits.body_ms, "the next part of the body");
  return make_error(ErrorCode::request_timeout, "", "the request did not arrive in time ({} ms for {})", ms,
                    what);
}

void Connection::on_timer() {
  if (state_ == State::closed) return;
  const int64_t now = now_ns();
  if (now >= write_deadline_) return client_gone();  // a reader that stopped reading
  if (now >= read_deadline_) {
    read_deadline_ = kNever;
    if (state_ == State::reading && (body_phase_ || !in_.empty())) {
      refuse(timed_out(now));
    } else {
      return close();
    }
  }
  if (now >= comment_deadline_) {
    comment_deadline_ = now + host_->limits.keep_alive_comment_ms * kMs;
    if (const auto exchange = exchange_) exchange->on_silence();
  }
  arm_timer();
}

}  // namespace

void serve_connection(IoThread& thread, asio::ip::tcp::socket socket, std::shared_ptr<ConnectionHost> host) {
  std::make_shared<Connection>(thread, std::move(socket), std::move(host))->start();
}

}  // namespace godwit::server
