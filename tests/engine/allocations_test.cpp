// Engine and rank threads allocate nothing after ready (design §1): this program's malloc counts what threads
// that have promised so (base/allocation.h) ask for, over a mixed run of 10,000 steps.
#include <execinfo.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "base/allocation.h"
#include "base/fault.h"
#include "engine/engine.h"

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

std::atomic<int64_t> broken_promises{0};
constexpr int kKeptTraces = 12, kFrames = 16;
struct Trace {
  void* frames[kFrames];
  int count = 0;
} traces[kKeptTraces];

void note() {
  if (!godwit::allocation_forbidden) return;
  godwit::allocation_forbidden = false;  // what follows may allocate
  const int64_t n = broken_promises.fetch_add(1);
  if (n < kKeptTraces) traces[n].count = backtrace(traces[n].frames, kFrames);
  godwit::allocation_forbidden = true;
}

}  // namespace

extern "C" {
void* malloc(size_t size) {
  note();
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  note();
  return __libc_calloc(count, size);
}
void* realloc(void* p, size_t size) {
  note();
  return __libc_realloc(p, size);
}
void* memalign(size_t alignment, size_t size) {
  note();
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  note();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, size_t alignment, size_t size) {
  note();
  *out = __libc_memalign(alignment, size);
  return *out ? 0 : ENOMEM;
}
}

namespace godwit::engine {
namespace {

void print_traces() {
  for (int i = 0; i < kKeptTraces && traces[i].count > 0; ++i) {
    std::fprintf(stderr, "allocation %d:\n", i);
    backtrace_symbols_fd(traces[i].frames, traces[i].count, 2);
  }
}

TEST(Allocations, TheHookCountsWhatAMarkedThreadAllocates) {
  void* warm[1];
  backtrace(warm, 1);  // loads its library
  const int64_t before = broken_promises;
  std::thread([] {
    std::vector<int> fine(100);
    const ForbidAllocation forbidden;
    std::vector<int> noted(100);
    {
      const AllowAllocation allowed;
      std::vector<int> also_fine(100);
    }
    noted.reserve(1000);
  }).join();
  EXPECT_EQ(broken_promises - before, 2);
  for (Trace& t : traces) t.count = 0;
  broken_promises = 0;
}

// Requests of all kinds, some cancelled, some read slowly, more than fit at once, in a cache so small that
// prefixes are dropped and sequences sent away.
class Load {
 public:
  explicit Load(Engine& engine) : engine_(engine), streams_(kStreams) {}

  void turn() {
    for (Stream& s : streams_) {
      if (!s.sink && !begin(s)) continue;
      if (random_() % 4 == 0) continue;  // a slow reader
      s.sink->take(s.batch);
      tokens_ += static_cast<int64_t>(s.batch.tokens.size());
      if (s.batch.end) {
        ++ends_[static_cast<size_t>(s.batch.end->reason)];
        ++failures_[static_cast<size_t>(s.batch.end->failure)];
        s.sink.reset();
      } else if (random_() % 1000 == 0) {
        s.sink->cancel();
      }
    }
  }
  int64_t ends(FinishReason reason) const { return ends_[static_cast<size_t>(reason)]; }
  int64_t failures(Failure failure) const { return failures_[static_cast<size_t>(failure)]; }
  bool saw_all() const {
    return tokens_ > 5'000 && ends(FinishReason::length) > 50 && ends(FinishReason::stop) > 5 &&
           ends(FinishReason::cancelled) > 5 && failures(Failure::deadline) > 5 &&
           failures(Failure::not_finite) > 1;
  }

 private:
  static constexpr size_t kStreams = 14;
  struct Stream {
    std::shared_ptr<TokenSink> sink;
    TokenSink::Batch batch;
  };

  bool begin(Stream& s) {
    Request r;
    // Half of the prompts start with one of three trunks, so that prefixes are shared, hit and evicted.
    const uint32_t kind = random_() % 6;
    std::mt19937 trunk(kind);
    if (kind < 3)
      for (int i = 0; i < 700; ++i) r.prompt.push_back(static_cast<int32_t>(trunk() % 320));
    const uint32_t more = 1 + random_() % 400;
    for (uint32_t i = 0; i < more; ++i) r.prompt.push_back(static_cast<int32_t>(random_() % 320));
    r.sampling.temperature = random_() % 2 ? 0.f : 1.f;
    r.sampling.top_p = random_() % 2 ? 1.f : 0.9f;
    r.sampling.top_k = random_() % 3 ? 0 : 20;
    r.sampling.seed = random_();
    if (random_() % 3 == 0) r.sampling.presence_penalty = 0.5f;
    if (random_() % 3 == 0) r.sampling.top_logprobs = static_cast<int32_t>(random_() % 21);
    if (random_() % 3 == 0) r.sampling.logit_bias = {{5, 1.f}, {7, -100.f}};
    if (random_() % 3 == 0) r.stop.stop_ids = {11, 12, 13};
    if (random_() % 4 == 0) {
      r.rules.thinking = true;
      r.rules.thinking_budget = random_() % 40;
      r.rules.think_close = 3;
    }
    if (random_() % 8 == 0) {
      r.prompt_logprobs = true;
      r.sampling.top_logprobs = static_cast<int32_t>(random_() % 5);
    } else if (random_() % 5 == 0)
      r.forced.assign(3 + random_() % 100, 17);
    r.stop.max_tokens = static_cast<int64_t>(r.forced.size()) + 1 + random_() % 500;
    r.stop.ignore_eos = random_() % 2 == 0;
    if (random_() % 20 == 0) r.deadline_ns = SteadyClock().now_ns() + 1'000'000 * (1 + random_() % 200);
    s.sink = std::make_shared<TokenSink>(64, [] {});
    r.sink = s.sink;
    if (engine_.submit(std::move(r)).ok()) return true;
    s.sink.reset();
    return false;
  }

  Engine& engine_;
  std::mt19937 random_{7};
  std::vector<Stream> streams_;
  int64_t ends_[4] = {};
  int64_t failures_[5] = {};
  int64_t tokens_ = 0;
};

TEST(Allocations, NoneOnEngineAndRankThreadsInTenThousandMixedSteps) {
  EngineOptions options;
  options.model_dir = std::string(GODWIT_SOURCE_DIR) + "/models/random-glm5next";
  options.threads = 2;
  options.context = 2048;
  options.max_sequences = 6;
  options.max_waiting = 20;
  options.prefill_tokens = 128;
  options.cache_tokens = 3072;
  auto engine = Engine::start(options, std::vector<bool>(352, true));
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  Load load(**engine);
  constexpr uint64_t kSteps = 10'000;
  int64_t turns = 0;
  Status status = (*engine)->status();
  // How much 10,000 steps are depends on the machine: the run goes on until every kind has been seen.
  while ((status.steps < kSteps || !load.saw_all() || status.cached_tokens <= 10'000) &&
         status.health == Health::ready) {
    load.turn();
    if (++turns % 500 == 0) fault::arm("engine.nan", 0, 1);
    std::this_thread::sleep_for(std::chrono::microseconds(500));
    status = (*engine)->status();
  }
  EXPECT_EQ(broken_promises, 0);
  if (broken_promises > 0) print_traces();
  EXPECT_EQ(status.health, Health::ready);
  EXPECT_EQ(load.ends(FinishReason::error),
            load.failures(Failure::deadline) + load.failures(Failure::not_finite));
}

}  // namespace
}  // namespace godwit::engine
