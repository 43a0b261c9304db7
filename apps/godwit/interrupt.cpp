#include "interrupt.h"

#include <poll.h>

#include <cerrno>

namespace godwit {

InterruptScope::InterruptScope() {
  struct sigaction action {};
  action.sa_handler = [](int) {};  // ppoll returning EINTR is all the news there is
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &previous_);
  sigset_t block;
  sigemptyset(&block);
  sigaddset(&block, SIGINT);
  pthread_sigmask(SIG_BLOCK, &block, &outside_);
  sigdelset(&outside_, SIGINT);
}

InterruptScope::~InterruptScope() {
  sigaction(SIGINT, &previous_, nullptr);
  pthread_sigmask(SIG_SETMASK, &outside_, nullptr);
}

InterruptScope::Wait InterruptScope::wait_readable(int fd, int timeout_ms) const {
  pollfd entry{fd, POLLIN, 0};
  const timespec timeout{timeout_ms / 1000, (timeout_ms % 1000) * 1'000'000L};
  const int ready = ppoll(&entry, 1, timeout_ms < 0 ? nullptr : &timeout, &outside_);
  if (ready > 0) return Wait::ready;
  return ready == 0 ? Wait::timed_out : Wait::interrupted;
}

}  // namespace godwit
