#include "kernels/cpu/pool.h"

#include "base/allocation.h"
#include "base/assert.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace godwit::cpu {
namespace {

constexpr int kFieldBits = 20;
constexpr uint64_t kFieldMask = (uint64_t{1} << kFieldBits) - 1;
static_assert(Pool::kMaxTasks == static_cast<int64_t>(kFieldMask));

// About 70 us: longer than the serial ops between two parallel ones, shorter than anyone notices as load.
constexpr int kSpins = 4000;
// The caller waits for claimed tasks only; after this many spins it yields, in case the worker that holds
// one has lost its core.
constexpr int kSpinsBeforeYield = 1000;

uint64_t next_of(uint64_t state) {
  return state & kFieldMask;
}
uint64_t tasks_of(uint64_t state) {
  return (state >> kFieldBits) & kFieldMask;
}

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

Pool::Pool(int threads) {
  if (threads <= 0) threads = static_cast<int>(std::thread::hardware_concurrency());
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

Pool::~Pool() {
  stop_.store(true);
  state_.fetch_add(uint64_t{1} << (2 * kFieldBits));
  state_.notify_all();
  for (std::thread& t : workers_) t.join();
}

bool Pool::claim_and_do(int thread) {
  uint64_t state = state_.load(std::memory_order_acquire);
  for (;;) {
    if (next_of(state) >= tasks_of(state)) return false;
    if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel, std::memory_order_acquire))
      break;
  }
  body_(callee_, static_cast<int64_t>(next_of(state)), thread);
  done_.fetch_add(1, std::memory_order_release);
  return true;
}

void Pool::share(int64_t tasks, Body body, void* callee) {
  GODWIT_ASSERT(tasks <= kMaxTasks);
  body_ = body;
  callee_ = callee;
  done_.store(0, std::memory_order_relaxed);
  const uint64_t generation = (state_.load(std::memory_order_relaxed) >> (2 * kFieldBits)) + 1;
  state_.store(generation << (2 * kFieldBits) | static_cast<uint64_t>(tasks) << kFieldBits,
               std::memory_order_release);
  state_.notify_all();
  while (claim_and_do(0)) {
  }
  for (int spins = 0; done_.load(std::memory_order_acquire) != tasks; ++spins) {
    if (spins < kSpinsBeforeYield)
      pause();
    else
      std::this_thread::yield();
  }
}

void Pool::work(int thread) {
  const ForbidAllocation forbidden;
  uint64_t seen = state_.load(std::memory_order_acquire);
  int spins = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    if (claim_and_do(thread)) {
      spins = 0;
      continue;
    }
    const uint64_t state = state_.load(std::memory_order_acquire);
    if (state != seen) {
      seen = state;
      spins = 0;
    } else if (++spins < kSpins) {
      pause();
    } else {
      state_.wait(seen, std::memory_order_acquire);
      spins = 0;
    }
  }
}

}  // namespace godwit::cpu
