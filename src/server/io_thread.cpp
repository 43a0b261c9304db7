#include "server/io_thread.h"

#include <boost/asio/post.hpp>
#include <exception>

#include "base/log.h"

namespace godwit::server {

IoThread::~IoThread() {
  stop();
}

void IoThread::start() {
  thread_ = std::thread([this] { run(); });
}

void IoThread::stop() {
  if (!thread_.joinable()) return;
  post([this] {
    const std::vector<Resident*> all(residents_.begin(), residents_.end());
    for (Resident* resident : all) resident->cut();
    context_.stop();
  });
  thread_.join();
  std::lock_guard lock(mutex_);
  closed_ = true;
  waiting_.clear();
}

void IoThread::post(std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    waiting_.push_back(std::move(work));
    if (waiting_.size() > 1) return;  // whoever came first has rung
  }
  boost::asio::post(context_, [this] { take(); });
}

void IoThread::take() {
  {
    std::lock_guard lock(mutex_);
    taken_.swap(waiting_);
  }
  for (auto& work : taken_) {
    try {
      work();
    } catch (const std::exception& e) {  // a bug of ours must cost one exchange, not the rest
      log_error("exception in posted work: {}", e.what());
    }
  }
  taken_.clear();
}

void IoThread::run() {
  while (!context_.stopped()) {
    try {
      context_.run();
    } catch (const std::exception& e) {
      log_error("exception on an I/O thread: {}", e.what());
    }
  }
}

}  // namespace godwit::server
