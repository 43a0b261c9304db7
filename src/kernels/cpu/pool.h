// A spinning pool for work of a few microseconds: an op of a decode step is shorter than a futex wake-up, so
// workers spin between the ops of a step and sleep only when none comes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace godwit::cpu {

class Pool {
 public:
  // `threads` includes the caller; 0 = all cores.
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  static constexpr int64_t kMaxTasks = (int64_t{1} << 20) - 1;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls f(task, thread) for every task in [0, tasks), thread in [0, threads()). `work` estimates the
  // multiply-adds of all tasks: below kSerialWork the caller does them alone, which never changes a result
  // because a task's result depends on the task only. Returns when all are done. Not reentrant.
  template <class F>
  void run(int64_t tasks, int64_t work, F&& f) {
    if (tasks <= 1 || work < kSerialWork || workers_.empty()) {
      for (int64_t i = 0; i < tasks; ++i) f(i, 0);
      return;
    }
    using Callee = std::remove_reference_t<F>;
    share(
        tasks, [](void* callee, int64_t task, int thread) { (*static_cast<Callee*>(callee))(task, thread); },
        const_cast<void*>(static_cast<const void*>(&f)));
  }

 private:
  using Body = void (*)(void* callee, int64_t task, int thread);

  // Handing tasks to a spinning worker and waiting for it costs about 1 us; 64 K multiply-adds take 4 us.
  static constexpr int64_t kSerialWork = 64 * 1024;

  void share(int64_t tasks, Body body, void* callee);
  bool claim_and_do(int thread);
  void work(int thread);

  // generation (24 bits) | tasks (20) | next (20): one word, so that a claim can only succeed on the live
  // job and a late worker never sees a mixture of two.
  std::atomic<uint64_t> state_{0};
  std::atomic<int64_t> done_{0};
  std::atomic<bool> stop_{false};
  Body body_ = nullptr;
  void* callee_ = nullptr;
  std::vector<std::thread> workers_;
};

}  // namespace godwit::cpu
