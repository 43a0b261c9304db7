// Host work of a step: plan() + apply() of the real schedule and cache, without a model. Design §13: at most
// 100 µs at batch 32. Each time is one step; p99 and max come from timing every step by itself.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "base/hash.h"
#include "schedule/scheduler.h"

namespace godwit {
namespace {

constexpr int64_t kMillion = 1'000'000;

// Schedule, cache and a virtual clock; draws are always token 5.
class Bed final : public schedule::Listener {
 public:
  explicit Bed(int32_t pages = 54'000, int32_t snapshots = 1000)
      : cache_({.pages = pages, .slots = 65, .snapshots = snapshots}),
        scheduler_({.context = 1 << 20, .max_sequences = 64, .max_waiting = 2000, .prefill_tokens = 16384},
                   cache_, {}, clock_, *this),
        drawn_(64) {
    scheduler_.prepare(plan_);
    for (sample::Sampled& d : drawn_) d.id = 5;
  }

  // `like`: prompts with one seed have the same ids.
  std::unique_ptr<schedule::Sequence> make(int64_t prompt, int64_t most, uint64_t like) {
    auto s = std::make_unique<schedule::Sequence>();
    s->number = ++made_;
    s->tokens.reserve(static_cast<size_t>(prompt + most));
    for (int64_t i = 0; i < prompt; ++i)
      s->tokens.push_back(static_cast<int32_t>(mix64(like * kMillion + static_cast<uint64_t>(i)) % 150'000));
    s->keys = cache::block_keys(s->tokens, 0);
    s->prompt_tokens = s->forced_end = prompt;
    s->max_tokens = most;
    s->lease.pages.reserve(static_cast<size_t>(cache::pages_for(prompt + most)));
    s->submitted_ns = clock_.now_ns();
    return s;
  }
  void add(std::unique_ptr<schedule::Sequence> s) { scheduler_.add(std::move(s)); }

  // A step that takes what 16 streams and a slice of 1,088 rows take on four H200.
  void step() {
    scheduler_.plan(plan_);
    clock_.advance_ns(8 * kMillion + (plan_.rows() > plan_.decode_rows() ? 8 * kMillion : 0) +
                      12'000 * (plan_.rows() - plan_.decode_rows()));
    scheduler_.apply(plan_, drawn_.data());
  }
  void run_until_decoding() {
    do step();
    while (plan_.decode_sequences < scheduler_.running() || scheduler_.waiting() > 0);
  }
  // Many small prefixes of earlier requests, as a server has after an hour.
  void age(int64_t prompts) {
    for (int64_t i = 0; i < prompts; ++i) {
      add(make(300, 1, 1'000'000 + static_cast<uint64_t>(i)));
      if (i % 32 == 31) run_until_decoding();
    }
    run_until_decoding();
  }
  schedule::Scheduler& scheduler() { return scheduler_; }
  const schedule::StepPlan& plan() const { return plan_; }

  void on_admit(schedule::Sequence&) override {}
  void on_token(schedule::Sequence&, const sample::Sampled&) override {}
  void on_end(std::unique_ptr<schedule::Sequence> s, schedule::FinishReason, int32_t,
              schedule::Failure) override {
    ended_ = std::move(s);  // its memory is freed with the next one: not this thread's work in the engine
  }

 private:
  VirtualClock clock_;
  cache::Cache cache_;
  schedule::Scheduler scheduler_;
  schedule::StepPlan plan_;
  std::vector<sample::Sampled> drawn_;
  std::unique_ptr<schedule::Sequence> ended_;
  uint64_t made_ = 0;
};

void time_steps(benchmark::State& state, Bed& bed) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> us;
  us.reserve(static_cast<size_t>(state.max_iterations));
  int64_t prompt_rows = 0;
  for (auto _ : state) {
    const auto from = Clock::now();
    bed.step();
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - from).count());
    prompt_rows += bed.plan().rows() - bed.plan().decode_rows();
  }
  state.counters["prompt_rows"] = static_cast<double>(prompt_rows) / static_cast<double>(us.size());
  std::sort(us.begin(), us.end());
  state.counters["p50_us"] = us[us.size() / 2];
  state.counters["p99_us"] = us[us.size() * 99 / 100];
  state.counters["max_us"] = us.back();
}

// 32 streams; args: context of one of them, the others have 8K; requests that wait.
void BM_decode_step(benchmark::State& state) {
  Bed bed(state.range(1) > 0 ? 20'000 : 54'000);
  for (int64_t i = 0; i < 32; ++i)
    bed.add(bed.make(i == 0 ? state.range(0) : 8192, 40'000, static_cast<uint64_t>(i)));
  bed.run_until_decoding();
  // The head of the line fits only when somebody has ended; nobody overtakes it.
  if (state.range(1) > 0) bed.add(bed.make(1'040'000, 4096, 99));
  for (int64_t i = 1; i < state.range(1); ++i) bed.add(bed.make(100, 10, static_cast<uint64_t>(1000 + i)));
  time_steps(state, bed);
}
BENCHMARK(BM_decode_step)->Args({8192, 0})->Args({1'000'000, 0})->Args({8192, 1000})->Iterations(20'000);

// 32 streams while 128K prompts join one after the other; arg: prefixes of earlier requests in the cache.
void BM_mixed_step(benchmark::State& state) {
  Bed bed;
  bed.age(state.range(0));
  for (int64_t i = 0; i < 32; ++i) bed.add(bed.make(8192, 40'000, static_cast<uint64_t>(i)));
  bed.run_until_decoding();
  for (int64_t i = 0; i < 24; ++i) bed.add(bed.make(131'072, 1, static_cast<uint64_t>(100 + i)));
  time_steps(state, bed);
  if (bed.plan().rows() == bed.plan().decode_rows())
    state.SkipWithError("ran out of prompts: times mean nothing");
}
BENCHMARK(BM_mixed_step)->Arg(0)->Arg(3000)->Iterations(1500);

// Admission of a prompt nobody has seen, and of one that is in the cache; with its release.
void BM_admit(benchmark::State& state) {
  Bed bed;
  const int64_t prompt = state.range(0);
  cache::Cache cache({.pages = 54'000, .slots = 2, .snapshots = 16});
  auto s = bed.make(prompt, 1, 1);
  const cache::Prompt ids{{s->tokens.data(), static_cast<size_t>(prompt)}, s->keys};
  if (state.range(1) == 1) {
    cache.acquire(ids, prompt + 1, s->lease);
    cache.reserve_snapshot(s->lease, cache::Cache::last_boundary(prompt));
    cache.commit(s->lease, ids, cache::Cache::last_boundary(prompt));
    cache.release(s->lease);
  }
  for (auto _ : state) {
    cache.acquire(ids, prompt + 1, s->lease);
    if ((s->lease.cached > 0) != (state.range(1) == 1)) state.SkipWithError("hit and miss are mixed up");
    cache.release(s->lease);
  }
}
BENCHMARK(BM_admit)
    ->ArgNames({"prompt", "cached"})
    ->Args({8192, 0})
    ->Args({8192, 1})
    ->Args({1'000'000, 0})
    ->Args({1'000'000, 1})
    ->Unit(benchmark::kMicrosecond);

// Making room among so many small cached prefixes, each with a snapshot: a prompt that takes `pages` pages
// drops as many of them.
void BM_evict(benchmark::State& state) {
  Bed bed(2, 1);
  const auto leaves = static_cast<int32_t>(state.range(0)), pages = static_cast<int32_t>(state.range(1));
  cache::Cache cache({.pages = leaves + 2, .slots = 3, .snapshots = leaves});
  uint64_t like = 0;
  const auto fill = [&](int32_t prefixes) {
    for (int32_t i = 0; i < prefixes; ++i) {
      auto s = bed.make(65, 1, ++like);
      const cache::Prompt prompt{{s->tokens.data(), 65}, s->keys};
      cache.acquire(prompt, 65, s->lease);
      cache.reserve_snapshot(s->lease, 64);
      cache.commit(s->lease, prompt, 64);
      cache.release(s->lease);
    }
  };
  fill(leaves);
  auto large = bed.make(63, 64 * pages, 0);
  const cache::Prompt prompt{{large->tokens.data(), 63}, large->keys};
  for (auto _ : state) {
    if (!cache.acquire(prompt, 64 * pages, large->lease)) state.SkipWithError("no room was made");
    state.PauseTiming();
    cache.release(large->lease);
    fill(pages - 1);
    state.ResumeTiming();
  }
}
BENCHMARK(BM_evict)
    ->ArgNames({"leaves", "pages"})
    ->Args({1000, 100})
    ->Args({100'000, 100})
    ->Args({100'000, 2000})
    ->Iterations(20)
    ->Unit(benchmark::kMicrosecond);

// What the engine thread does not do: the keys of a prompt, made by a text worker.
void BM_block_keys(benchmark::State& state) {
  const std::vector<int32_t> ids(static_cast<size_t>(state.range(0)), 7);
  for (auto _ : state) benchmark::DoNotOptimize(cache::block_keys(ids, 1).data());
}
BENCHMARK(BM_block_keys)->Arg(8192)->Arg(1'000'000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace godwit

BENCHMARK_MAIN();
