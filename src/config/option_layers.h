// Where the value of a flag comes from: command line, else GODWIT_<FLAG> in the environment, else the
// --config file, else the default. The same rule for every flag of every subcommand.
#pragma once

#include <CLI/App.hpp>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace godwit {

// "--max-sequences" or "max-sequences" -> "GODWIT_MAX_SEQUENCES"
std::string environment_name(std::string_view flag);

// Flag name without dashes -> "command line" | "GODWIT_PORT" | "FILE". A flag left at its default is absent.
using OptionSources = std::map<std::string, std::string, std::less<>>;

// Fills the options of a parsed `command` that the command line left empty. `config_file` is TOML with bare
// flag names as keys, top level or in a section named like the command; sections of other commands are
// skipped; may be empty. Errors (usage) name the variable, or file and key: unknown key, bad value.
Result<OptionSources> apply_option_layers(CLI::App& command, const std::filesystem::path& config_file);

// The closest of `known` to `word` for "did you mean", empty when nothing is close.
std::string closest_name(std::string_view word, const std::vector<std::string>& known);

}  // namespace godwit
