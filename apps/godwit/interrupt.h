// Ctrl-C that stops what is being waited for instead of the program.
#pragma once

#include <csignal>

namespace godwit {

// While one lives, SIGINT arrives only inside wait_readable, so no interrupt is lost between a check and a
// read.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  enum class Wait { ready, interrupted, timed_out };
  // Until `fd` can be read (or is closed). timeout_ms < 0: for ever.
  Wait wait_readable(int fd, int timeout_ms) const;

 private:
  sigset_t outside_{};  // the mask before, SIGINT unblocked
  struct sigaction previous_ {};
};

}  // namespace godwit
