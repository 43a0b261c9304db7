// godwit bench step: one step of one rank at the real shapes, without a checkpoint.
// godwit bench load: a rank's share of a checkpoint, read as the engine reads it.
#include <fmt/core.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fstream>
#include <memory>

#include "bench/load_bench.h"
#include "bench/step_bench.h"
#include "commands.h"
#include "config/flag_values.h"

namespace godwit {
namespace {

struct Options {
  bench::StepCase step;
  std::string out;
};

struct LoadOptions {
  bench::LoadCase load;
  std::string out;
};

int write_json(const std::string& path, const Json& json) {
  if (path.empty()) return 0;
  std::ofstream file(path);
  file << dump_json(json, JsonStyle::compact()) << '\n';
  if (file) return 0;
  fmt::print(stderr, "godwit: --out: {} cannot be written\n", path);
  return 1;
}

int run_step(const Options& options) {
  const auto results = bench::run_step_bench(options.step);
  if (!results.ok()) return report_failure(results.error());
  fmt::print("{}", bench::as_table(options.step, *results));
  bool trusted = true;
  for (const bench::StepResult& r : *results) trusted &= r.trusted();
  if (const int failed = write_json(options.out, bench::as_json(options.step, *results))) return failed;
  return trusted ? 0 : 1;
}

int run_load(const LoadOptions& options) {
  const auto result = bench::run_load_bench(options.load);
  if (!result.ok()) return report_failure(result.error());
  const ReadStatus& read = result->read;
  fmt::print("{:.3f} GB of {} shards in {:.3f} s by {} threads: {:.3f} GB/s; buffers made in {:.3f} s{}\n",
             static_cast<double>(read.bytes) * 1e-9, read.files, read.seconds, options.load.threads,
             read.bytes_per_second() * 1e-9, result->buffers_s,
             options.load.verify ? "; every byte is the file's" : "");
  return write_json(options.out, bench::as_json(options.load, *result));
}

void add_load(CLI::App& command, std::function<int()>& run) {
  CLI::App* load = command.add_subcommand("load", "Time reading one rank's share of a checkpoint");
  auto o = std::make_shared<LoadOptions>();
  bench::LoadCase& l = o->load;
  load->add_option("--checkpoint", l.checkpoint, "Directory with config.json and safetensors files")
      ->required()
      ->type_name("DIR");
  const auto count = [&](const char* flag, auto& value, double low, double high, const char* what) {
    load->add_option(flag, value, what)
        ->capture_default_str()
        ->type_name("N")
        ->check(CLI::Range(low, high).description(""));
  };
  count("--threads", l.threads, 1, 256, "That read at the same time");
  count("--tp", l.tp, 1, 64, "Ranks of the replica this one belongs to");
  count("--ep", l.ep, 1, 64, "Groups of whole experts");
  count("--rank", l.rank, 0, 63, "Which of them");
  load->add_option("--device", l.device, "Where it goes: cpu or cuda")
      ->capture_default_str()
      ->type_name("D")
      ->check(CLI::IsMember({"cpu", "cuda"}).description(""));
  load->add_flag("--verify", l.verify, "Compare every byte with the files afterwards");
  load->add_option("--out", o->out, "Also write the numbers as JSON")->type_name("FILE");
  load->callback([o, &run] { run = [o] { return run_load(*o); }; });
}

}  // namespace

void add_bench_command(CLI::App& app, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand("bench", "Measure");
  command->require_subcommand(1);
  add_load(*command, run);
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
  const auto count = [&](const char* flag, int64_t& value, int64_t low, int64_t high, const char* what) {
    step->add_option(flag, value, what)
        ->capture_default_str()
        ->type_name("N")
        ->transform(whole_number(low, high));
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
  step->add_flag("--draft", s.draft, "Instead, the draft step: one row of each sequence");
  count("--prefill", s.prefill, 0, 16384,
        "Instead, a slice of so many prompt rows of each sequence, then decode steps");
  step->add_flag("--whole", s.whole, "Also time all slices from the first token to the end of this one");
  count("--rounds", s.rounds, 1, 100, "Timed rounds of each of two recordings");
  step->add_option("--kv", s.kv,
                   "Cache precision: f32, bf16 or fp8; auto is f32 on the CPU and bf16 on a GPU")
      ->capture_default_str()
      ->type_name("T")
      ->check(CLI::IsMember({"auto", "f32", "bf16", "fp8"}).description(""));
  step->add_flag("--shared-context", s.shared_context,
                 "All sequences of a step read the same pages of context, so that many fit");
  step->add_option("--out", o->out, "Also write the numbers as JSON")->type_name("FILE");
  step->callback([o, &run] { run = [o] { return run_step(*o); }; });
}

}  // namespace godwit
