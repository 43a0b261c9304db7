#include "server/listener.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <vector>

#include "base/log.h"
#include "server/connection.h"

namespace godwit::server {
namespace asio = boost::asio;
using boost::system::error_code;

struct Listener::Impl {
  std::vector<std::unique_ptr<IoThread>> threads;
  std::unique_ptr<asio::ip::tcp::acceptor> acceptor;
  std::unique_ptr<asio::steady_timer> retry;
  std::shared_ptr<ConnectionHost> host = std::make_shared<ConnectionHost>();
  size_t next = 0;
  bool stopped = false;

  void accept();
  void make_room();
  void on_accept(const error_code& ec, asio::ip::tcp::socket socket, IoThread& thread);
};

void Listener::Impl::accept() {
  IoThread& thread = *threads[next++ % threads.size()];
  acceptor->async_accept(thread.context(),
                         [this, &thread](const error_code& ec, asio::ip::tcp::socket socket) {
                           on_accept(ec, std::move(socket), thread);
                         });
}

// Near the limit, connections that only wait for a next request give way: whoever keeps many of them open
// must not keep probes and other clients out.
void Listener::Impl::make_room() {
  const size_t limit = host->limits.connections;
  const size_t reserve = std::max<size_t>(1, limit / 64);
  if (host->connections.load() + static_cast<int64_t>(reserve) < static_cast<int64_t>(limit)) return;
  if (host->shedding.load() > 0) return;
  const size_t each = (reserve + threads.size() - 1) / threads.size();
  for (const auto& thread : threads) {
    host->shedding.fetch_add(1);
    thread->mailbox()->post([&thread = *thread, each, host = host] {
      thread.cut_idle(each);
      host->shedding.fetch_sub(1);
    });
  }
}

void Listener::Impl::on_accept(const error_code& ec, asio::ip::tcp::socket socket, IoThread& thread) {
  if (ec == asio::error::operation_aborted) return;
  if (ec) {  // out of descriptors, or the client was faster: try again, but do not spin
    log_warn("accept failed: {}; trying again", ec.message());
    retry->expires_after(std::chrono::milliseconds(100));
    retry->async_wait([this](const error_code& wait_ec) {
      if (!wait_ec) accept();
    });
    return;
  }
  make_room();
  if (host->connections.load() >= static_cast<int64_t>(host->limits.connections)) {
    static constexpr std::string_view kBusy =
        "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: "
        "0\r\n\r\n";
    error_code ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(kBusy.data(), kBusy.size()), ignored);
  } else {
    auto moved = std::make_shared<asio::ip::tcp::socket>(std::move(socket));
    thread.mailbox()->post(
        [&thread, moved, host = host] { serve_connection(thread, std::move(*moved), host); });
  }
  accept();
}

namespace {

// A connection is a descriptor; the usual soft limit of 1,024 is below what we allow.
void raise_descriptor_limit(size_t connections) {
  constexpr rlim_t kOthers = 256;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min<rlim_t>(limit.rlim_max, connections + kOthers);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Listener::Listener(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Listener::~Listener() {
  stop();
}

Result<std::unique_ptr<Listener>> Listener::start(const Options& options, HttpHandlers handlers) {
  auto impl = std::make_unique<Impl>();
  raise_descriptor_limit(options.limits.connections);
  impl->host->limits = options.limits;
  impl->host->handlers = std::move(handlers);
  for (int i = 0; i < std::max(1, options.threads); ++i) {
    impl->threads.push_back(std::make_unique<IoThread>());
  }

  error_code ec;
  const auto address = asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, ec);
  if (ec) {
    return make_error(ErrorCode::usage, "--host", "'{}' is not an IPv4 or IPv6 address", options.host);
  }
  const asio::ip::tcp::endpoint endpoint(address, options.port);
  impl->acceptor = std::make_unique<asio::ip::tcp::acceptor>(impl->threads[0]->context());
  impl->retry = std::make_unique<asio::steady_timer>(impl->threads[0]->context());
  impl->acceptor->open(endpoint.protocol(), ec);
  if (!ec) impl->acceptor->set_option(asio::socket_base::reuse_address(true), ec);
  if (!ec) impl->acceptor->bind(endpoint, ec);
  if (!ec) impl->acceptor->listen(asio::socket_base::max_listen_connections, ec);
  if (ec) {
    return make_error(ErrorCode::unavailable, options.port_flag, "cannot listen on {}:{}: {}", options.host,
                      options.port, ec.message());
  }
  impl->accept();
  for (auto& thread : impl->threads) thread->start();
  return std::unique_ptr<Listener>(new Listener(std::move(impl)));
}

uint16_t Listener::port() const {
  error_code ignored;
  return impl_->acceptor->local_endpoint(ignored).port();
}

int64_t Listener::connections() const {
  return impl_->host->connections.load();
}
int64_t Listener::body_bytes() const {
  return impl_->host->body_bytes.load();
}
int64_t Listener::exchanges() const {
  return impl_->host->exchanges.load();
}
void Listener::begin_closing() {
  impl_->host->closing.store(true);
}

void Listener::stop() {
  if (impl_->stopped) return;
  impl_->stopped = true;
  for (auto& thread : impl_->threads) thread->stop();
}

}  // namespace godwit::server
