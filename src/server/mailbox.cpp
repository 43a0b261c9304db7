#include "server/mailbox.h"

#include <boost/asio/post.hpp>
#include <exception>

#include "base/log.h"

namespace godwit::server {

void Mailbox::post(std::function<void()> work) {
  std::lock_guard lock(mutex_);
  if (closed_) return;
  waiting_.push_back(std::move(work));
  if (waiting_.size() > 1) return;  // whoever came first has rung
  // Under the lock: after close() the context may be gone.
  boost::asio::post(context_, [this] { take(); });
}

void Mailbox::close() {
  std::vector<std::function<void()>> dropped;  // destroyed after the lock is released: it may hold anything
  std::lock_guard lock(mutex_);
  closed_ = true;
  dropped.swap(waiting_);
}

void Mailbox::take() {
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

}  // namespace godwit::server
