// BoundedQueue: the only thing between two threads (design §3). Many producers, many consumers, fixed
// capacity, storage allocated once. The lock covers a move of one element, never work.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

namespace godwit {

template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : ring_(capacity) {}

  // False when the queue is full or closed: the caller decides, nobody blocks.
  bool try_push(T&& value) {
    {
      std::lock_guard lock(mutex_);
      if (closed_ || size_ == ring_.size()) return false;
      ring_[(head_ + size_++) % ring_.size()] = std::move(value);
    }
    ready_.notify_one();
    return true;
  }

  std::optional<T> try_pop() {
    std::lock_guard lock(mutex_);
    return take();
  }

  // Waits up to `timeout`; nothing when it passed or the queue is closed and empty.
  std::optional<T> pop_for(std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, timeout, [&] { return size_ > 0 || closed_; });
    return take();
  }

  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  bool closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }
  size_t size() const {
    std::lock_guard lock(mutex_);
    return size_;
  }
  size_t capacity() const { return ring_.size(); }

 private:
  std::optional<T> take() {
    if (size_ == 0) return std::nullopt;
    std::optional<T> out(std::move(ring_[head_]));
    head_ = (head_ + 1) % ring_.size();
    --size_;
    return out;
  }

  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<T> ring_;
  size_t head_ = 0;
  size_t size_ = 0;
  bool closed_ = false;
};

}  // namespace godwit
