// godwit bench step: one step of one rank at the real shapes, without a checkpoint.
#include <fmt/core.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fstream>
#include <memory>

#include "bench/step_bench.h"
#include "commands.h"

namespace godwit {
namespace {

struct Options {
  bench::StepCase step;
  std::string out;
};

int run_step(const Options& options) {
  const auto results = bench::run_step_bench(options.step);
  if (!results.ok()) return report_failure(results.error());
  fmt::print("{}", bench::as_table(options.step, *results));
  bool trusted = true;
  for (const bench::StepResult& r : *results) trusted &= r.same_logits || !r.refused.empty();
  if (!options.out.empty()) {
    std::ofstream file(options.out);
    file << dump_json(bench::as_json(options.step, *results), JsonStyle::compact()) << '\n';
    if (!file) {
      fmt::print(stderr, "godwit: --out: {} cannot be written\n", options.out);
      return 1;
    }
  }
  return trusted ? 0 : 1;
}

}  // namespace

void add_bench_command(CLI::App& app, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand("bench", "Measure");
  command->require_subcommand(1);
  CLI::App* step = command->add_subcommand(
      "step", "Time one step of one rank with synthetic weights and without communication");
  auto o = std::make_shared<Options>();
  bench::StepCase& s = o->step;
  step->add_option("--shape", s.shape, "glm-5.3-flash, or a config.json")
      ->capture_default_str()
      ->type_name("S");
  step->add_option("--device", s.device, "cpu or cuda")
      ->capture_default_str()
      ->type_name("D")
      ->check(CLI::IsMember({"cpu", "cuda"}).description(""));
  const auto count = [&](const char* flag, int64_t& value, double low, double high, const char* what) {
    step->add_option(flag, value, what)
        ->capture_default_str()
        ->type_name("N")
        ->check(CLI::Range(low, high).description(""));
  };
  count("--tp", s.tp, 1, 64, "Ranks of the replica this one belongs to");
  count("--ep", s.ep, 1, 64, "Groups of whole experts");
  count("--rank", s.rank, 0, 63, "Which of them");
  step->add_option("--batch", s.batches, "Sequences of a step (repeatable)")
      ->capture_default_str()
      ->type_name("N");
  step->add_option("--context", s.contexts, "Tokens before the step (repeatable)")
      ->capture_default_str()
      ->type_name("N");
  count("--rows", s.rows, 1, 64, "Rows of a sequence: 1 decodes, more verify");
  count("--prefill", s.prefill, 0, 1 << 20, "Instead, one slice of so many prompt rows");
  step->add_option("--out", o->out, "Also write the numbers as JSON")->type_name("FILE");
  step->callback([o, &run] { run = [o] { return run_step(*o); }; });
}

}  // namespace godwit
