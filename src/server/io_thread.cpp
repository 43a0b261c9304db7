#include "server/io_thread.h"

#include <exception>
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
