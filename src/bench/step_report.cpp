#include <fmt/format.h>

#include "bench/step_bench.h"

namespace godwit::bench {
namespace {

std::string free_memory(const DecodeBehind& b) {
  if (b.free_before == 0) return "unknown of this device";
  return fmt::format("{} and {} bytes, {}", b.free_before, b.free_after,
                     b.free_before == b.free_after ? "equal" : "which DIFFER");
}

}  // namespace

Json as_json(const StepCase& asked, const std::vector<StepResult>& results) {
  JsonArray cases;
  for (const StepResult& r : results) {
    JsonArray parts;
    for (const StepPart& p : r.parts)
      parts.push_back(Json::object({{"part", p.name},
                                    {"us", p.us},
                                    {"us_min", p.us_min},
                                    {"us_max", p.us_max},
                                    {"gigabytes", p.gigabytes},
                                    {"gigaflops", p.gigaflops},
                                    {"roof_us", p.roof_us},
                                    {"a_a_percent", p.a_a_percent}}));
    Json one = Json::object({{"batch", r.batch},
                             {"context", r.context},
                             {"rows", r.rows},
                             {"kv", r.kv},
                             {"refused", r.refused},
                             {"tokens_per_s", r.tokens_per_s()},
                             {"distinct_experts", r.distinct_experts},
                             {"expected_experts", r.expected_experts},
                             {"same_logits", r.same_logits},
                             {"cached_bytes", r.memory.cached()},
                             {"workspace_bytes", r.memory.workspace()},
                             {"parts", Json(std::move(parts))}});
    if (asked.whole) one.as_object().set("whole_us", r.whole_us);
    if (asked.prefill > 0)
      one.as_object().set("behind", Json::object({{"first_decode_us", r.behind.first_us},
                                                  {"steady_decode_us", r.behind.steady_us},
                                                  {"free_before", r.behind.free_before},
                                                  {"free_after", r.behind.free_after}}));
    cases.push_back(std::move(one));
  }
  return Json::object({{"shape", asked.shape},
                       {"device", asked.device},
                       {"tp", asked.tp},
                       {"ep", asked.ep},
                       {"rank", asked.rank},
                       {"shared_context", asked.shared_context},
                       {"kind", asked.prefill > 0 ? "prefill"
                                : asked.draft     ? "draft"
                                : asked.rows > 1  ? "verify"
                                                  : "decode"},
                       {"cases", Json(std::move(cases))}});
}

std::string as_table(const StepCase& asked, const std::vector<StepResult>& results) {
  std::string out = fmt::format("{} tp {} ep {} rank {}: one rank, no communication\n", asked.shape, asked.tp,
                                asked.ep, asked.rank);
  if (asked.shared_context)
    out +=
        "all sequences read the same pages of context: what one has read may still be in the L2 cache for "
        "the "
        "next,\nso this is faster than contexts of their own, and GB count what each of them reads\n";
  for (const StepResult& r : results) {
    out += fmt::format("\n{} x {} rows at {} tokens, {} caches", r.batch, r.rows, r.context, r.kv);
    if (!r.refused.empty()) {
      out += fmt::format(": not run, {}\n", r.refused);
      continue;
    }
    out +=
        fmt::format("; {:.0f} {}/s; {:.1f} distinct experts a layer ({:.1f} expected); timed logits {}\n",
                    r.tokens_per_s(), asked.draft ? "drafts" : "tok", r.distinct_experts, r.expected_experts,
                    r.same_logits ? "equal an untimed step's" : "DIFFER from an untimed step's");
    out += fmt::format("  {:<6} {:>10} {:>22} {:>6} {:>8} {:>10} {:>10} {:>7}\n", "part", "ms", "min … max",
                       "A/A %", "GB", "GFLOP", "roof ms", "% roof");
    for (const StepPart& p : r.parts)
      out += fmt::format(
          "  {:<6} {:>10.3f} {:>10.3f} … {:>9.3f} {:>6.1f} {:>8.3f} {:>10.1f} {:>10.3f} {:>7.1f}\n", p.name,
          p.us / 1e3, p.us_min / 1e3, p.us_max / 1e3, p.a_a_percent, p.gigabytes, p.gigaflops,
          p.roof_us / 1e3, 100 * p.roof_us / p.us);
    if (asked.prefill == 0) continue;
    out += fmt::format(
        "  {:.3f} GB of activations and scratch; free before the slice and after what follows it: {}\n"
        "  behind the slice: first decode step {:.3f} ms, {:.3f} ms steady\n",
        static_cast<double>(r.memory.workspace()) / 1e9, free_memory(r.behind), r.behind.first_us / 1e3,
        r.behind.steady_us / 1e3);
    if (asked.whole)
      out += fmt::format("  from the first token to the end of this slice: {:.3f} s, {:.0f} tok/s\n",
                         r.whole_us / 1e6, static_cast<double>(r.whole_tokens) / r.whole_us * 1e6);
  }
  return out;
}

}  // namespace godwit::bench
