// Time as a dependency: the engine reads a Clock, so that the simulator can drive the same code with virtual
// time.
#pragma once

#include <chrono>
#include <cstdint>

namespace godwit {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_ns() const = 0;  // monotonic, arbitrary origin
};

class SteadyClock final : public Clock {
 public:
  int64_t now_ns() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

class VirtualClock final : public Clock {
 public:
  int64_t now_ns() const override { return now_; }
  void advance_ns(int64_t by) { now_ += by; }

 private:
  int64_t now_ = 0;
};

}  // namespace godwit
