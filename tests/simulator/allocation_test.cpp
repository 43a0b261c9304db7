// The engine thread allocates nothing: planning and applying steps with prompts, hits, evictions, growth and
// preemptions asks the allocator for nothing, once the first plan has its storage.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "schedule/scheduler.h"
#include "traffic.h"

namespace {
thread_local bool counting = false;
thread_local int64_t allocations = 0;
}  // namespace

void* operator new(size_t bytes) {
  if (counting) ++allocations;
  if (void* p = std::malloc(bytes > 0 ? bytes : 1)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept {
  std::free(p);
}

namespace godwit::simulator {
namespace {

// Keeps what ended without allocating: it is freed outside the counted part.
class Shelf final : public schedule::Listener {
 public:
  Shelf() { ended.reserve(64); }
  void on_admit(schedule::Sequence&) override {}
  void on_token(schedule::Sequence&, const sample::Sampled&) override {}
  void on_end(std::unique_ptr<schedule::Sequence> s, schedule::FinishReason, int32_t,
              schedule::Failure failure) override {
    ++failures[static_cast<size_t>(failure)];
    ended.push_back(std::move(s));
  }
  std::vector<std::unique_ptr<schedule::Sequence>> ended;
  int64_t failures[5] = {};  // by Failure
};

TEST(EngineThread, PlansAndAppliesWithoutAllocating) {
  const schedule::ScheduleLimits limits{.context = 16384,
                                        .max_sequences = 8,
                                        .max_waiting = 40,
                                        .prefill_tokens = 1024,
                                        .snapshot_stride = 512};
  const cache::HostSizes host{.pages = 200, .snapshots = 8, .slots = 2};
  VirtualClock clock;
  cache::Cache cache({.pages = 330, .slots = 9, .snapshots = 12, .host = host});
  Shelf shelf;
  schedule::Scheduler scheduler(limits, cache, {}, clock, shelf);
  schedule::StepPlan plan;
  scheduler.prepare(plan);
  ShadowModel model(330, 9, 12, host);
  std::vector<sample::Sampled> drawn;
  Traffic traffic({.context = 16384, .long_prompt = 3000, .longest_answer = 12'000}, 1);
  uint64_t made = 0;
  int64_t ended = 0, cached = 0;
  for (int step = 0; step < 30'000; ++step) {
    std::unique_ptr<schedule::Sequence> next;
    if (scheduler.waiting() < 6) next = traffic.next(++made, clock.now_ns()).sequence;
    scheduler.for_each([&](schedule::Sequence& s) { s.cancelled = s.cancelled || traffic.one_in(5000); });
    counting = true;
    if (next) scheduler.add(std::move(next));
    scheduler.plan(plan);
    counting = false;
    model.run(plan, drawn);
    if (!drawn.empty() && traffic.one_in(2000)) drawn[0].finite = 0;
    clock.advance_ns(10'000'000);
    counting = true;
    if (!plan.empty()) scheduler.apply(plan, drawn.data());
    counting = false;
    for (auto& s : shelf.ended) {
      cached += s->lease.cached;
      traffic.tell(static_cast<int64_t>(s->number % 32), s->tokens);
    }
    ended += static_cast<int64_t>(shelf.ended.size());
    shelf.ended.clear();
    ASSERT_EQ(allocations, 0) << "in step " << step;
  }
  EXPECT_GT(ended, 100);
  EXPECT_GT(cached, 0);
  EXPECT_GT(shelf.failures[static_cast<size_t>(schedule::Failure::deadline)], 0);
  EXPECT_GT(shelf.failures[static_cast<size_t>(schedule::Failure::not_finite)], 0);
  EXPECT_GT(cache.evictions(), 0u);
  EXPECT_GT(scheduler.preemptions(), 0u);
}

}  // namespace
}  // namespace godwit::simulator
