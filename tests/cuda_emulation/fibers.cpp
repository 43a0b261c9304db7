#include "fibers.h"

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

// Saves what a call must keep on this stack, notes where, and goes on from another stack. By hand, because a
// kernel changes fibers at each shuffle: ucontext makes a system call each time.
extern "C" void godwit_emulation_switch(void** from, void* to);
asm(R"(
  .globl godwit_emulation_switch
  .type godwit_emulation_switch, @function
godwit_emulation_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
)");

namespace godwit::emulation {
namespace {

constexpr int kSavedRegisters = 6;
Fibers* entering = nullptr;  // a new fiber is passed nothing

}  // namespace

void fail(const char* what, size_t number) {
  std::fputs("CUDA emulation: ", stderr);
  std::fprintf(stderr, what, number);
  std::fprintf(stderr, " (block %u, thread %u)\n", blockIdx.x, threadIdx.x);
  std::abort();
}

void Fibers::enter() {
  Fibers& self = *entering;
  for (;;) {
    (*self.thread_)();
    self.finish();
  }
}

// As if the fiber had just called switch_stacks() from the first line of enter().
void* Fibers::new_stack(size_t i) {
  Fiber& fiber = *fibers_[i];
  if (!fiber.stack) fiber.stack = std::make_unique_for_overwrite<unsigned char[]>(kStackBytes);
  ASAN_UNPOISON_MEMORY_REGION(fiber.stack.get(), kStackBytes);  // what a thread that was left had there
  // Not all at the same place of a page, or they would push each other out of the caches.
  const auto end = reinterpret_cast<uintptr_t>(fiber.stack.get()) + kStackBytes - i % 61 * 1088;
  auto* top = reinterpret_cast<void**>(end / 64 * 64);
  *--top = nullptr;  // where enter() would return to
  *--top = reinterpret_cast<void*>(&Fibers::enter);
  for (int saved = 0; saved < kSavedRegisters; ++saved) *--top = nullptr;
  return top;
}

void Fibers::resume(size_t i) {
  running_ = i;
  threadIdx = {static_cast<unsigned>(i) % shape_.threads, 0, 0};
  blockIdx = {shape_.first_block + block(), 0, 0};
  entering = this;
  godwit_emulation_switch(&scheduler_, fibers_[i]->at);
}

void Fibers::pause() {
  godwit_emulation_switch(&fibers_[running_]->at, scheduler_);
}

void Fibers::finish() {
  Fiber& fiber = *fibers_[running_];
  if (!fiber.waited) fail("a thread ended without wait_for_previous()", 0);
  const auto under_way = std::ranges::count_if(fiber.copies, [](const Copy& c) { return !c.last_of_group; });
  if (under_way > 0) fail("a thread ended with %zu copies under way", static_cast<size_t>(under_way));
  end();
}

void Fibers::end() {
  fibers_[running_]->done = true;
  --alive_;
  const unsigned alive = --alive_of_[block()];
  const int barrier = static_cast<int>(block()) * kBarriers;
  const size_t warp = running_ / 32;
  warps_[warp]->alive &= ~(1u << running_ % 32);
  for (size_t i = 32 * warp; i < fibers_.size() && i < 32 * (warp + 1); ++i)
    if (fibers_[i]->blocked && fibers_[i]->lanes != 0) release_lanes(warp, fibers_[i]->lanes);
  if (arrived_[barrier] > 0 && arrived_[barrier] == alive) release_barrier(barrier);
  if (cluster_arrived_ > 0) release_cluster();
  pause();
}

void Fibers::add_copy(const Copy& copy) {
  fibers_[running_]->copies.push_back(copy);
  see(copy);
}

void Fibers::see(const Copy& copy) {
  Fiber& fiber = *fibers_[running_];
  if (fiber.waited || !copy.present) return;
  for (size_t i = 0; i < copy.bytes; ++i) fiber.seen = (fiber.seen ^ copy.source[i]) * 0x100000001b3;
}

void Fibers::wait_for_previous() {
  Fiber& fiber = *fibers_[running_];
  if (fiber.waited) return;
  fiber.waited = true;
  if (ahead_) {
    (*seen_)[running_] = fiber.seen;
    fiber.left = true;
    end();
  }
  if (expected_ != nullptr && (*expected_)[running_] != fiber.seen)
    fail("what the copies before wait_for_previous() read is written by a launch that may still run", 0);
}

bool Fibers::look_ahead(const Shape& shape, bool reversed, const std::function<void()>& thread,
                        std::vector<uint64_t>& seen) {
  seen.assign(shape.threads * shape.blocks, 0);
  seen_ = &seen;
  ahead_ = true;
  lets_next_ = false;
  run(shape, reversed, thread);
  ahead_ = false;
  return lets_next_;
}

void Fibers::run(const Shape& shape, bool reversed, const std::function<void()>& thread,
                 const std::vector<uint64_t>* seen) {
  const unsigned threads = shape.threads * shape.blocks;
  shape_ = shape;
  thread_ = &thread;
  expected_ = seen;
  alive_ = threads;
  std::fill_n(alive_of_, shape.blocks, shape.threads);
  cluster_arrived_ = cluster_turn_ = 0;
  while (fibers_.size() < threads) {
    fibers_.push_back(std::make_unique<Fiber>());
    fibers_.back()->at = new_stack(fibers_.size() - 1);
  }
  warp_count_ = (threads + 31) / 32;
  while (warps_.size() < warp_count_) warps_.push_back(std::make_unique<Warp>());
  for (auto& warp : warps_) warp->alive = warp->arrived = 0;
  for (unsigned i = 0; i < threads; ++i) {
    Fiber& fiber = *fibers_[i];
    if (std::exchange(fiber.left, false)) fiber.at = new_stack(i);
    fiber.done = fiber.blocked = fiber.waited = false;
    fiber.seen = 0;
    fiber.cluster_turn = 0;
    fiber.copies.clear();
    fiber.condition = nullptr;
    warps_[i / 32]->alive |= 1u << i % 32;
  }
  while (alive_ > 0) {
    bool moved = false;
    for (size_t w = 0; w < warp_count_; ++w) {
      const size_t first = 32 * (reversed ? warp_count_ - 1 - w : w);
      const size_t lanes = std::min<size_t>(32, threads - first);
      for (bool again = true; again;) {
        again = false;
        for (size_t lane = 0; lane < lanes; ++lane) {
          const size_t i = first + (reversed ? lanes - 1 - lane : lane);
          Fiber& fiber = *fibers_[i];
          if (fiber.condition != nullptr && (*fiber.condition)()) {
            fiber.condition = nullptr;
            fiber.blocked = false;
          }
          if (fiber.done || fiber.blocked) continue;
          resume(i);
          again = moved = true;
        }
      }
    }
    if (!moved) {
      if (!ahead_) stuck();
      return abandon();  // the rest waits for threads that came as far as they could
    }
  }
}

void Fibers::abandon() {
  seen_->clear();
  for (auto& fiber : fibers_) fiber->left |= fiber->blocked && !fiber->done;
  std::ranges::fill(arrived_, 0u);
  std::ranges::fill(votes_, 0);
}

bool Fibers::release_lanes(size_t warp, unsigned mask) {
  Warp& w = *warps_[warp];
  const unsigned needed = mask & w.alive;
  if (needed == 0 || (w.arrived & needed) != needed) return false;
  w.arrived &= ~needed;
  const int first = __builtin_ctz(needed);
  w.parity ^= 1u << first;
  Gift* const met = w.met[first][w.parity >> first & 1];
  std::copy_n(w.gifts, 32, met);
  for (unsigned rest = needed; rest != 0; rest &= rest - 1) {
    Fiber& fiber = *fibers_[32 * warp + static_cast<size_t>(__builtin_ctz(rest))];
    fiber.blocked = false;
    fiber.met = met;
  }
  return true;
}

void Fibers::release_barrier(int barrier) {
  arrived_[barrier] = 0;
  for (auto& fiber : fibers_)
    if (fiber->blocked && fiber->lanes == 0 && fiber->barrier == barrier) fiber->blocked = false;
}

void Fibers::wait_for_lanes(unsigned mask) {
  const size_t warp = running_ / 32;
  Fiber& fiber = *fibers_[running_];
  warps_[warp]->arrived |= 1u << running_ % 32;
  fiber.lanes = mask;
  if (release_lanes(warp, mask)) return;
  fiber.blocked = true;
  pause();
}

const Gift* Fibers::exchange(unsigned mask, const Gift& own) {
  warps_[running_ / 32]->gifts[running_ % 32] = own;
  wait_for_lanes(mask);
  return fibers_[running_]->met;
}

void Fibers::wait_for_threads(int barrier, unsigned count) {
  meet(static_cast<int>(block()) * kBarriers + barrier, count > 0 ? count : alive_of_[block()]);
}
void Fibers::arrive_at_cluster() {
  Fiber& fiber = *fibers_[running_];
  if (fiber.cluster_turn > cluster_turn_) fail("a thread arrived twice without wait_for_cluster()", 0);
  fiber.cluster_turn = cluster_turn_ + 1;
  ++cluster_arrived_;
  release_cluster();
}
void Fibers::release_cluster() {
  if (cluster_arrived_ < alive_) return;
  cluster_arrived_ = 0;
  ++cluster_turn_;
}
void Fibers::wait_for_cluster() {
  const unsigned turn = fibers_[running_]->cluster_turn;
  wait_until([this, turn] { return cluster_turn_ >= turn; });
}

void Fibers::meet(int barrier, unsigned count) {
  if (++arrived_[barrier] == count) return release_barrier(barrier);
  Fiber& fiber = *fibers_[running_];
  fiber.lanes = 0;
  fiber.barrier = barrier;
  fiber.blocked = true;
  pause();
}

void Fibers::wait_until(const std::function<bool()>& condition) {
  if (condition()) return;
  Fiber& fiber = *fibers_[running_];
  fiber.lanes = 0;
  fiber.barrier = kCondition;
  fiber.condition = &condition;
  fiber.blocked = true;
  pause();
}

void Fibers::stuck() {
  std::fputs("CUDA emulation: every thread of a block waits, for\n", stderr);
  for (size_t i = 0; i < fibers_.size(); ++i) {
    const Fiber& fiber = *fibers_[i];
    if (!fiber.done && fiber.blocked)
      std::fprintf(stderr, "  thread %zu: %s %x\n", i, fiber.lanes != 0 ? "lanes" : "barrier",
                   fiber.lanes != 0 ? fiber.lanes : static_cast<unsigned>(fiber.barrier));
  }
  std::abort();
}

}  // namespace godwit::emulation
