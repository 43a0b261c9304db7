// The subcommands of the godwit binary, one file each (design §5).
//
// add_<name>_command declares a subcommand on `app`; when the user picks it, its callback sets `run` to the
// work to do. Nothing runs while the command line is parsed, so --help and usage errors come first. `run`
// returns the exit code: 0 done, 1 failed, 2 usage, 3 model or data refused, 4 device (base/error.h).
#pragma once

#include <CLI/App.hpp>
#include <functional>

#include "base/error.h"
#include "config/option_layers.h"

namespace godwit {

void add_serve_command(CLI::App& app, std::function<int()>& run);
void add_key_command(CLI::App& app, std::function<int()>& run);
void add_chat_command(CLI::App& app, std::function<int()>& run);
void add_plan_command(CLI::App& app, std::function<int()>& run);
void add_replay_step_command(CLI::App& app, std::function<int()>& run);
void add_inspect_command(CLI::App& app, std::function<int()>& run);
void add_debug_command(CLI::App& app, std::function<int()>& run);
void add_selftest_command(CLI::App& app, std::function<int()>& run);
void add_bench_command(CLI::App& app, std::function<int()>& run);
void add_completion_command(CLI::App& app, std::function<int()>& run);

// Where each flag of the running command got its value (config/option_layers.h). Set before `run` is called.
const OptionSources& option_sources();

// Prints "godwit: <field>: <message>" to stderr and returns the exit code of the error's code.
int report_failure(const Error& error);

}  // namespace godwit
