#include <fmt/core.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdlib>

#include "build_id.h"
#include "commands.h"
#include "config/option_layers.h"

namespace godwit {

int report_failure(const Error& error) {
  fmt::print(stderr, "godwit: {}{}{}\n", error.field, error.field.empty() ? "" : ": ", error.message);
  return info(error.code).exit_code;
}

namespace {

constexpr const char* kFooter =
    R"(Every flag can also be set as GODWIT_<FLAG> (GODWIT_PORT=9000) or in a --config file (port = 9000).
The command line wins over the environment, the environment over the file.
Exit codes: 0 done, 1 failed, 2 usage, 3 model or data refused, 4 device.

Examples:
  godwit serve                                   the built-in tiny model on http://127.0.0.1:8000
  godwit serve --model /models/GLM --port 9000   a checkpoint directory
  godwit chat                                    talk to it from this terminal)";

CLI::App* picked_command(CLI::App& app) {
  CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands()[0];
  return command;
}

// "unknown flag --prot, did you mean --port?" for what CLI11 only calls unexpected.
std::string explain_unknown(CLI::App& app) {
  CLI::App* command = picked_command(app);
  const std::vector<std::string> extras = app.remaining(true);
  const std::string word = extras.empty() ? "" : extras[0].substr(0, extras[0].find('='));
  const bool flag = word.starts_with("-");
  std::vector<std::string> known;
  if (flag) {
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
  } else {
    for (const CLI::App* sub : command->get_subcommands({})) known.push_back(sub->get_name());
  }
  const std::string close = closest_name(word, known);
  return fmt::format("{} \"{}\"{}",
                     flag            ? "unknown flag"
                     : known.empty() ? "unexpected argument"
                                     : "unknown command",
                     word, close.empty() ? "" : fmt::format(", did you mean {}?", close));
}

// --config on every command that has flags of its own.
void offer_config_file(CLI::App& command, std::string& config_file) {
  for (CLI::App* sub : command.get_subcommands({})) offer_config_file(*sub, config_file);
  if (command.get_options().size() <= 1) return;  // --help alone
  command.add_option("--config", config_file, "Read flags from a TOML file (also GODWIT_CONFIG)")
      ->type_name("FILE")
      ->check(CLI::ExistingFile.description(""));
}

OptionSources& effective_sources() {
  static OptionSources sources;
  return sources;
}

int usage_error(CLI::App& app, const std::string& message) {
  std::string path = "godwit";
  for (CLI::App* command = &app; !command->get_subcommands().empty();) {
    command = command->get_subcommands()[0];
    path += " " + command->get_name();
  }
  fmt::print(stderr, "godwit: {}\nSee: {} --help\n", message, path);
  return info(ErrorCode::usage).exit_code;
}

int main_with(int argc, char** argv) {
  CLI::App app{"A native serving engine for GLM-5.3-Flash.", "godwit"};
  app.set_version_flag("--version", "godwit " + std::string(build_id()));
  app.set_help_flag("-h,--help", "Print this help");
  app.require_subcommand(0, 1);
  app.footer(kFooter);
  app.get_formatter()->column_width(34);

  std::function<int()> run;
  std::string config_file;
  for (auto* add : {add_serve_command, add_key_command, add_chat_command, add_inspect_command,
                    add_plan_command, add_debug_command, add_selftest_command, add_bench_command,
                    add_replay_step_command, add_completion_command}) {
    add(app, run);
  }
  for (CLI::App* command : app.get_subcommands({})) offer_config_file(*command, config_file);

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::ExtrasError&) {
    return usage_error(app, explain_unknown(app));
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error.what());
  }
  if (!run) {  // no subcommand, or a group of subcommands without one
    fmt::print(stderr, "{}", picked_command(app)->help());
    return info(ErrorCode::usage).exit_code;
  }
  const char* from_environment = std::getenv("GODWIT_CONFIG");
  if (config_file.empty() && from_environment != nullptr) config_file = from_environment;
  auto sources = apply_option_layers(*picked_command(app), config_file);
  if (!sources.ok()) return report_failure(sources.error());
  effective_sources() = std::move(*sources);
  return run();
}

}  // namespace

const OptionSources& option_sources() {
  return effective_sources();
}

}  // namespace godwit

int main(int argc, char** argv) {
  return godwit::main_with(argc, argv);
}
