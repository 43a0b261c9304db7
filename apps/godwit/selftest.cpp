// godwit selftest: goldens and gates on a backend, with the numbers they measured.
#include "selftest/selftest.h"

#include <fmt/core.h>

#include <chrono>
#include <memory>

#include "commands.h"
#include "kernels/make_ops.h"

namespace godwit {
namespace {

struct Options {
  std::string device = "cpu";
  std::string models = "models";
  std::string twins = "build/models";
  std::string goldens = "tests/golden/data";
  std::string scratch = std::filesystem::temp_directory_path().string();
  std::vector<std::string> only;
  int threads = 0;
  bool list = false;
  bool verbose = false;
};

int run_selftest(const Options& options) {
  const selftest::Paths paths{options.models, options.twins, options.goldens, options.scratch};
  selftest::RigOptions rig;
  rig.backend = options.device;
  rig.threads = options.threads;
  const auto ops = kernels::make_ops(options.device, options.threads);
  if (!ops.ok()) return report_failure(ops.error());
  int ran = 0, failed = 0;
  for (const selftest::Check& check : selftest::all_checks()) {
    const auto chosen = [&] {
      if (check.engine && options.device == "reference") return false;  // it never serves
      if (!(*ops)->holds(check.cache)) return false;
      if (options.only.empty()) return true;
      for (const std::string& name : options.only)
        if (check.name == name) return true;
      return false;
    };
    if (!chosen()) continue;
    if (options.list) {
      fmt::print("{:<44} {}\n", check.name, check.what);
      continue;
    }
    const auto start = std::chrono::steady_clock::now();
    const Result<selftest::Report> report = check.run(paths, rig);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const bool passed = report.ok() && report->passed();
    ++ran;
    failed += passed ? 0 : 1;
    fmt::print("{} {:<44} {:>6} comparisons  {:6.2f} s\n", passed ? "pass" : "FAIL", check.name,
               report.ok() ? report->checks : 0, seconds);
    if (!report.ok()) fmt::print("     {}: {}\n", report.error().field, report.error().message);
    if (!report.ok()) continue;
    for (const std::string& line : report->failures) fmt::print("     {}\n", line);
    if (options.verbose || !passed)
      for (const std::string& line : report->notes) fmt::print("     ({})\n", line);
  }
  if (options.list) return 0;
  fmt::print("{} of {} checks passed on {}\n", ran - failed, ran, options.device);
  return ran > 0 && failed == 0 ? 0 : 1;
}

}  // namespace

void add_selftest_command(CLI::App& app, std::function<int()>& run) {
  CLI::App* command =
      app.add_subcommand("selftest", "Compare the engine with reference outputs and check its gates");
  auto options = std::make_shared<Options>();
  command
      ->add_option("--device", options->device, "cpu, cuda, or reference (the slow definition of every op)")
      ->check(CLI::IsMember({"cpu", "cuda", "reference"}))
      ->capture_default_str();
  command->add_option("--only", options->only, "Run just these checks (see --list)")->type_name("NAME");
  command->add_option("--models", options->models, "Folder of the small models")
      ->type_name("DIR")
      ->capture_default_str();
  command->add_option("--twins", options->twins, "Folder of their FP8 twins, made by the build")
      ->type_name("DIR")
      ->capture_default_str();
  command->add_option("--goldens", options->goldens, "Folder of the reference outputs")
      ->type_name("DIR")
      ->capture_default_str();
  command->add_option("--scratch", options->scratch, "Folder for temporary files")->type_name("DIR");
  command->add_option("--threads", options->threads, "Threads of the CPU backend, 0 = all cores")
      ->capture_default_str();
  command->add_flag("--list", options->list, "List the checks");
  command->add_flag("--verbose", options->verbose, "Print what was measured");
  command->callback([options, &run] { run = [options] { return run_selftest(*options); }; });
}

}  // namespace godwit
