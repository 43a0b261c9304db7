// Threads for everything about a request that takes time before the engine sees it: JSON, template,
// tokenizer. An I/O thread does none of it (design §3).
//
// Two lanes: a body that takes seconds to tokenise (a million tokens) waits behind its like, never in front
// of somebody's one-line question. And it runs at a low priority, so that where cores are few it takes
// little of the time that streams need, yet is not starved by them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/queue.h"

namespace godwit::server {

class TextWorkers {
 public:
  static constexpr size_t kLongBytes = 64 * 1024;  // bodies from here on take the slow lane

  // threads >= 1 for short work; the slow lane has one more. `waiting`: jobs each lane may hold.
  TextWorkers(int threads, size_t waiting);
  ~TextWorkers();

  void stop();  // runs what is queued, then ends the threads

  // False when the lane is full: answer 429.
  bool submit(size_t body_bytes, std::function<void()> job);

 private:
  using Lane = BoundedQueue<std::function<void()>>;
  void work(Lane& lane);
  void work_in_the_background();

  Lane short_;
  Lane long_;
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

}  // namespace godwit::server
