#include "server/io_thread.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

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
  mailbox_->post([this] {
    const std::vector<Resident*> all(residents_.begin(), residents_.end());
    for (Resident* resident : all) resident->cut();
    context_.stop();
  });
  thread_.join();
  mailbox_->close();
}

void IoThread::cut_idle(size_t count) {
  std::vector<std::pair<int64_t, Resident*>> idle;
  for (Resident* resident : residents_)
    if (const int64_t since = resident->idle_since(); since != Resident::kBusy)
      idle.emplace_back(since, resident);
  count = std::min(count, idle.size());
  std::nth_element(idle.begin(), idle.begin() + static_cast<std::ptrdiff_t>(count), idle.end());
  for (size_t i = 0; i < count; ++i) idle[i].second->cut();
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
