// simulate [REQUESTS]: the simulator at scale (1,000,000 requests), and the tables the defaults were chosen
// from. Writes JSON to stdout.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "joining.h"
#include "soak.h"

namespace godwit::simulator {
namespace {

void print(const char* name, const Histogram& h, const char* end) {
  std::printf(
      "    \"%s_ms\": {\"count\": %lld, \"p50\": %.2f, \"p90\": %.2f, \"p99\": %.2f, \"p99.9\": %.2f, "
      "\"max\": %.2f}%s\n",
      name, static_cast<long long>(h.count()), h.ms(50), h.ms(90), h.ms(99), h.ms(99.9), h.longest_ms(), end);
}

void print_worlds(int64_t requests) {
  std::printf(" \"worlds\": [\n");
  bool first = true;
  for (const SoakOptions& world : worlds(requests)) {
    const SoakReport r = soak(world);
    const auto number = [](const char* name, int64_t n) {
      std::printf("\"%s\": %lld, ", name, static_cast<long long>(n));
    };
    std::printf("%s  {\"name\": \"%s\",\n    ", first ? "" : ",\n", world.name.c_str());
    number("requests", world.requests);
    number("stop", r.stopped);
    number("length", r.full_length);
    number("cancelled", r.cancelled);
    number("overdue", r.overdue);
    number("not_finite", r.not_finite);
    number("refused", r.refused);
    std::printf("\n    ");
    number("steps", r.steps);
    number("drawn", r.drawn);
    number("prompt_tokens", r.prompt_tokens);
    number("cached_tokens", r.cached_tokens);
    number("prompt_rows", r.prompt_rows);
    number("forced_rows", r.forced_rows);
    std::printf("\n    ");
    number("preemptions", r.preemptions);
    number("most_preemptions_of_one", r.most_preemptions);
    number("evicted_pages", r.evictions);
    number("host_hits", r.host_hits);
    number("idle_times", r.idle_times);
    number("copies", r.moves);
    number("waits_for_copies", r.waits);
    std::printf("\"virtual_seconds\": %.0f,\n", r.virtual_seconds);
    print("between_tokens", r.gap, ",");
    print("queued", r.queued, ",");
    print("first_token", r.first_token, ",");
    print("copies_of_a_step", r.copies, "}");
    first = false;
  }
  std::printf(" ],\n");
}

void print_joining() {
  std::printf(" \"joining\": [\n");
  bool first = true;
  for (const double factor : {1.0, 1.2, 1.35}) {
    for (const double target : {20.0, 25.0, 27.5, 30.0, 32.5, 35.0, 40.0, 50.0}) {
      JoiningOptions o;
      o.itl_target_ns = static_cast<int64_t>(target * 1e6);
      o.costs.prompt_factor = factor;
      const JoiningReport r = join(o);
      std::printf(
          "%s  {\"prompt_cost_factor\": %.2f, \"itl_target_ms\": %.1f, \"p50_before_ms\": %.2f, \"p50_ms\": "
          "%.2f, "
          "\"p99_ms\": %.2f, \"max_ms\": %.2f, \"ratio\": %.2f, \"prefill_tokens_per_s\": %.0f}",
          first ? "" : ",\n", factor, target, r.p50_before_ms, r.p50_ms, r.p99_ms, r.longest_ms, r.ratio(),
          r.prompt_tokens_per_second);
      first = false;
    }
  }
  std::printf("\n ],\n");
}

void print_restoring() {
  std::printf(" \"restoring\": [\n");
  bool first = true;
  for (const int64_t prompt : {int64_t{8192}, int64_t{131'072}}) {
    JoiningOptions o;
    o.prompt = prompt;
    o.prompts = 30;
    const RestoringReport r = restore(o);
    std::printf(
        "%s  {\"prompt\": %lld, \"restores\": %lld, \"p50_before_ms\": %.2f, \"p50_ms\": %.2f, \"p99_ms\": "
        "%.2f, \"max_ms\": %.2f, \"restored_gib_per_s\": %.2f, \"first_token_ms\": %.1f}",
        first ? "" : ",\n", static_cast<long long>(prompt), static_cast<long long>(r.restores),
        r.p50_before_ms, r.p50_ms, r.p99_ms, r.longest_ms, r.restored_gib_per_second, r.first_token_ms);
    first = false;
  }
  std::printf("\n ]\n");
}

}  // namespace
}  // namespace godwit::simulator

int main(int argc, char** argv) {
  const long long requests = argc > 1 ? std::atoll(argv[1]) : 1'000'000;
  if (requests < 1000) {
    std::fprintf(stderr, "usage: simulate [REQUESTS], at least 1000; without it 1000000\n");
    return 2;
  }
  try {
    std::printf("{\n");
    godwit::simulator::print_worlds(requests);
    godwit::simulator::print_joining();
    godwit::simulator::print_restoring();
    std::printf("}\n");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "simulate: an invariant is broken: %s\n", e.what());
    return 1;
  }
  return 0;
}
