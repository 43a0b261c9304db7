// godwit replay-step FILE: runs a step that died once more, where a debugger can watch.
#include "engine/replay.h"

#include <fmt/core.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>

#include "build_id.h"
#include "commands.h"
#include "config/flag_values.h"

namespace godwit {
namespace {

struct Options {
  std::string file;
  std::string model;
  int threads = 0;
  int64_t steps = 1;
};

int replay(const Options& options) {
  const auto dump = engine::read_step_dump(options.file);
  if (!dump.ok()) return report_failure(dump.error());
  const std::string model = options.model.empty() ? dump->model : options.model;
  fmt::print("step {} of {}: {} sequences, {} rows; it died of: {}\n", dump->plan.step, model,
             dump->plan.sequences.size(), dump->plan.rows(), dump->reason);
  if (dump->build != build_id()) fmt::print("note: dumped by {}, replayed by {}\n", dump->build, build_id());
  const auto replayed = engine::replay_step(*dump, model, options.threads, options.steps);
  if (!replayed.ok()) return report_failure(replayed.error());
  fmt::print("rebuilt {} rows, then {} of the {} recorded steps ran\n", replayed->rebuilt_rows,
             replayed->replayed_steps, dump->steps.size());
  size_t next = 0;
  bool finite = true;
  for (const schedule::PlanSequence& p : dump->plan.sequences) {
    fmt::print("  request {:<8} slot {:<5} positions {} to {}", p.request, p.rows.slot, p.rows.first,
               p.rows.first + p.rows.rows - 1);
    for (int32_t i = 0; i < p.sampled_rows; ++i, ++next) {
      const sample::Sampled& d = replayed->drawn[next];
      finite &= d.finite != 0;
      if (d.finite) {
        fmt::print("  draws {} (logprob {:.4f})", d.id, d.logprob);
      } else {
        fmt::print("  has no finite logits");
      }
    }
    fmt::print("\n");
  }
  return finite ? 0 : 1;
}

}  // namespace

void add_replay_step_command(CLI::App& app, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand("replay-step", "Run a dumped engine step again");
  auto options = std::make_shared<Options>();
  command->add_option("FILE", options->file, "Dump that a dying engine has written (see --dump-dir of serve)")
      ->type_name("FILE")
      ->required();
  command->add_option("--model", options->model, "Checkpoint directory; default: the one in the dump")
      ->type_name("DIR");
  command->add_option("--threads", options->threads, "Compute threads; default: all cores")
      ->type_name("N")
      ->transform(whole_number(1, 1024));
  command
      ->add_option("--steps", options->steps,
                   "Run so many of the last steps as they were sliced; what was before is rebuilt from ids")
      ->type_name("N")
      ->capture_default_str()
      ->transform(whole_number(1, 64));
  command->callback([options, &run] { run = [options] { return replay(*options); }; });
}

}  // namespace godwit
