#include "joining.h"

#include <random>

#include "histogram.h"
#include "world.h"

namespace godwit::simulator {

JoiningReport join(const JoiningOptions& o) {
  constexpr int64_t kBefore = 400;  // steps measured before anybody joins
  schedule::ScheduleLimits limits{.context = 1 << 20,
                                  .max_sequences = o.streams + 2,
                                  .max_waiting = 16,
                                  .prefill_tokens = 16384,
                                  .itl_target_ns = o.itl_target_ns};
  World w(limits, static_cast<int32_t>(cache::pages_for(o.streams * 40'000 + 4 * o.prompt)));
  std::mt19937 random(1);
  w.cost = [&](const schedule::StepPlan& plan) {
    return o.costs.ns(plan) * static_cast<int64_t>(970 + random() % 61) / 1000;  // steps scatter by 3 %
  };
  for (int64_t i = 0; i < o.streams; ++i) w.add(w.make(random_prompt(random, o.stream_context), 30'000));
  while (w.plan().decode_sequences < o.streams) w.step();

  // Every step gives every stream a token: the time between tokens is the time of a step.
  const auto measure = [&](Histogram& gaps) {
    const int64_t from = w.clock().now_ns();
    w.step();
    gaps.add(w.clock().now_ns() - from);
  };
  Histogram before, during;
  for (int64_t i = 0; i < kBefore; ++i) measure(before);
  const int64_t from = w.clock().now_ns();
  for (int64_t i = 0; i < o.prompts; ++i) {
    const uint64_t joined = w.add(w.make(random_prompt(random, o.prompt), 1));
    while (!w.ended.contains(joined)) measure(during);
  }
  const double seconds = static_cast<double>(w.clock().now_ns() - from) / 1e9;
  return {.p50_before_ms = before.ms(50),
          .p50_ms = during.ms(50),
          .p99_ms = during.ms(99),
          .longest_ms = during.longest_ms(),
          .prompt_tokens_per_second = static_cast<double>(o.prompts * o.prompt) / seconds};
}

}  // namespace godwit::simulator
