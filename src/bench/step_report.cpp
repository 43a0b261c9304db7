#include <fmt/format.h>

#include "bench/step_bench.h"

namespace godwit::bench {

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
                                    {"roof_us", p.roof_us}}));
    cases.push_back(Json::object({{"batch", r.batch},
                                  {"context", r.context},
                                  {"rows", r.rows},
                                  {"refused", r.refused},
                                  {"tokens_per_s", r.tokens_per_s()},
                                  {"distinct_experts", r.distinct_experts},
                                  {"expected_experts", r.expected_experts},
                                  {"same_logits", r.same_logits},
                                  {"parts", Json(std::move(parts))}}));
  }
  return Json::object({{"shape", asked.shape},
                       {"device", asked.device},
                       {"tp", asked.tp},
                       {"ep", asked.ep},
                       {"rank", asked.rank},
                       {"kind", asked.prefill > 0 ? "prefill"
                                : asked.rows > 1  ? "verify"
                                                  : "decode"},
                       {"cases", Json(std::move(cases))}});
}

std::string as_table(const StepCase& asked, const std::vector<StepResult>& results) {
  std::string out = fmt::format("{} tp {} ep {} rank {}: one rank, no communication\n", asked.shape, asked.tp,
                                asked.ep, asked.rank);
  for (const StepResult& r : results) {
    out += fmt::format("\n{} x {} rows at {} tokens", r.batch, r.rows, r.context);
    if (!r.refused.empty()) {
      out += fmt::format(": not run, {}\n", r.refused);
      continue;
    }
    out += fmt::format("; {:.0f} tok/s; {:.1f} distinct experts a layer ({:.1f} expected); timed logits {}\n",
                       r.tokens_per_s(), r.distinct_experts, r.expected_experts,
                       r.same_logits ? "equal an untimed step's" : "DIFFER from an untimed step's");
    out += fmt::format("  {:<6} {:>10} {:>22} {:>8} {:>10} {:>10} {:>7}\n", "part", "ms", "min … max", "GB",
                       "GFLOP", "roof ms", "% roof");
    for (const StepPart& p : r.parts)
      out += fmt::format("  {:<6} {:>10.3f} {:>10.3f} … {:>9.3f} {:>8.3f} {:>10.1f} {:>10.3f} {:>7.1f}\n",
                         p.name, p.us / 1e3, p.us_min / 1e3, p.us_max / 1e3, p.gigabytes, p.gigaflops,
                         p.roof_us / 1e3, 100 * p.roof_us / p.us);
  }
  return out;
}

}  // namespace godwit::bench
