#include "joining.h"

#include <random>

#include "histogram.h"
#include "world.h"

namespace godwit::simulator {
namespace {

constexpr int64_t kBefore = 400;  // steps measured before anybody joins

schedule::ScheduleLimits limits_of(const JoiningOptions& o) {
  return {.context = 1 << 20,
          .max_sequences = o.streams + 2,
          .max_waiting = 16,
          .prefill_tokens = 16384,
          .itl_target_ns = o.itl_target_ns};
}

// Steps scatter by 3 %.
void set_cost(World& w, const JoiningOptions& o, std::mt19937& random) {
  w.cost = [&](const schedule::StepPlan& plan) {
    return o.costs.ns(plan) * static_cast<int64_t>(970 + random() % 61) / 1000;
  };
}

void start_streams(World& w, const JoiningOptions& o, std::mt19937& random) {
  for (int64_t i = 0; i < o.streams; ++i) w.add(w.make(random_prompt(random, o.stream_context), 30'000));
  while (w.plan().decode_sequences < o.streams) w.step();
}

// Every step gives every stream a token: the time between tokens is the time of a step.
void measure(World& w, Histogram& gaps) {
  const int64_t from = w.clock().now_ns();
  w.step();
  gaps.add(w.clock().now_ns() - from);
}

}  // namespace

JoiningReport join(const JoiningOptions& o) {
  World w(limits_of(o), static_cast<int32_t>(cache::pages_for(o.streams * 40'000 + 4 * o.prompt)));
  std::mt19937 random(1);
  set_cost(w, o, random);
  start_streams(w, o, random);
  Histogram before, during;
  for (int64_t i = 0; i < kBefore; ++i) measure(w, before);
  const int64_t from = w.clock().now_ns();
  for (int64_t i = 0; i < o.prompts; ++i) {
    const uint64_t joined = w.add(w.make(random_prompt(random, o.prompt), 1));
    while (!w.ended.contains(joined)) measure(w, during);
  }
  const double seconds = static_cast<double>(w.clock().now_ns() - from) / 1e9;
  return {.p50_before_ms = before.ms(50),
          .p50_ms = during.ms(50),
          .p99_ms = during.ms(99),
          .longest_ms = during.longest_ms(),
          .prompt_tokens_per_second = static_cast<double>(o.prompts * o.prompt) / seconds};
}

RestoringReport restore(const JoiningOptions& o) {
  // Pages for what the streams become, and for some prompts; the host knows twice as many as the device
  // holds.
  const int64_t tokens = o.streams * (o.stream_context + 20'000) + 2 * o.prompt;
  const int64_t known_prompts = 2 * tokens / o.prompt + 1;
  const auto pages = [](int64_t n) { return static_cast<int32_t>(cache::pages_for(n)); };
  World w(limits_of(o), pages(tokens), {}, 64,
          {.pages = pages(2 * known_prompts * o.prompt), .snapshots = 4096, .slots = 4});
  std::mt19937 random(1);
  set_cost(w, o, random);
  std::vector<std::vector<int32_t>> known;
  for (int64_t i = 0; i < known_prompts; ++i) {
    known.push_back(random_prompt(random, o.prompt));
    w.add(w.make(known.back(), 1));
    w.run();
  }
  start_streams(w, o, random);
  Histogram before, during;
  for (int64_t i = 0; i < kBefore; ++i) measure(w, before);
  const int64_t from = w.clock().now_ns(), moved = w.model().moved_in;
  int64_t waited = 0;
  for (int64_t i = 0; i < o.prompts; ++i) {
    const int64_t asked = w.clock().now_ns();
    const uint64_t back = w.add(w.make(known[static_cast<size_t>(i % known_prompts)], 1));
    while (!w.ended.contains(back)) measure(w, during);
    waited += w.clock().now_ns() - asked;
  }
  const auto seconds = [](int64_t ns) { return static_cast<double>(ns) / 1e9; };
  const double bytes = static_cast<double>(StepCosts::kRecordBytes[0] * (w.model().moved_in - moved));
  return {.p50_before_ms = before.ms(50),
          .p50_ms = during.ms(50),
          .p99_ms = during.ms(99),
          .longest_ms = during.longest_ms(),
          .restored_gib_per_second = bytes / seconds(w.clock().now_ns() - from) / (1 << 30),
          .first_token_ms = 1000 * seconds(waited) / static_cast<double>(o.prompts),
          .restores = static_cast<int64_t>(w.cache().host_hits())};
}

}  // namespace godwit::simulator
