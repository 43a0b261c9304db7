#include "config/option_layers.h"

#include <CLI/Config.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <numeric>

namespace godwit {
namespace {

// Options a layer may set: long ones, except what only makes sense on a command line.
bool layered(const CLI::Option* option) {
  return !option->get_lnames().empty() && option->get_lnames()[0] != "help" &&
         option->get_lnames()[0] != "config";
}

// Gives `values` to an option as if the command line had; the error is CLI11's words.
Result<void> assign(CLI::Option& option, const std::vector<std::string>& values) {
  try {
    option.add_result(values);
    option.run_callback();
    return {};
  } catch (const CLI::Error& error) {
    option.clear();
    return make_error(ErrorCode::usage, "", "{}", error.what());
  }
}

Result<void> apply_environment(CLI::App& command, OptionSources& sources) {
  for (CLI::Option* option : command.get_options()) {
    if (!layered(option)) continue;
    const std::string& name = option->get_lnames()[0];
    if (option->count() > 0) {
      sources[name] = "command line";
      continue;
    }
    const std::string variable = environment_name(name);
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr || *value == '\0') continue;
    // A list in one variable is separated by commas.
    std::vector<std::string> values{value};
    if (option->get_expected_max() > 1) values = CLI::detail::split(value, ',');
    if (auto done = assign(*option, values); !done.ok()) {
      const bool service_link = std::string_view(value).starts_with("tcp://");
      return make_error(ErrorCode::usage, variable, "\"{}\": {}{}", value, done.error().message,
                        service_link ? ". Kubernetes sets this for a Service named godwit: put "
                                       "enableServiceLinks: false into the pod, or rename the Service"
                                     : "");
    }
    sources[name] = variable;
  }
  return {};
}

std::vector<std::string> flag_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    if (layered(option)) names.push_back(option->get_lnames()[0]);
  }
  return names;
}

Result<void> apply_file(CLI::App& command, const std::filesystem::path& path, OptionSources& sources) {
  std::ifstream stream(path);
  if (!stream) {
    return make_error(ErrorCode::usage, "--config", "cannot read {}: {}", path.string(),
                      std::strerror(errno));
  }
  for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(stream)) {
    if (item.name == "++" || item.name == "--") continue;  // section marks
    if (item.parents.size() > 1 || (item.parents.size() == 1 && item.parents[0] != command.get_name())) {
      continue;
    }
    CLI::Option* option = command.get_option_no_throw("--" + item.name);
    if (option == nullptr || !layered(option)) {
      const std::string close = closest_name(item.name, flag_names(command));
      return make_error(ErrorCode::usage, path.string(), "unknown key \"{}\"{}", item.name,
                        close.empty() ? fmt::format("; godwit {} --help lists them", command.get_name())
                                      : fmt::format(", did you mean \"{}\"?", close));
    }
    const std::string& name = option->get_lnames()[0];
    if (sources.contains(name)) continue;
    if (auto done = assign(*option, item.inputs); !done.ok()) {
      return make_error(ErrorCode::usage, path.string(), "{}: {}", item.name, done.error().message);
    }
    sources[name] = path.string();
  }
  return {};
}

}  // namespace

std::string environment_name(std::string_view flag) {
  flag.remove_prefix(std::min(flag.find_first_not_of('-'), flag.size()));
  std::string name = "GODWIT_";
  for (char c : flag) name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

Result<OptionSources> apply_option_layers(CLI::App& command, const std::filesystem::path& config_file) {
  OptionSources sources;
  GODWIT_TRY(apply_environment(command, sources));
  if (!config_file.empty()) GODWIT_TRY(apply_file(command, config_file, sources));
  return sources;
}

std::string closest_name(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  size_t best_distance = 1 + word.size() / 3;  // more changes than this is another word
  for (const std::string& candidate : known) {
    // Levenshtein distance, one row at a time.
    std::vector<size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        const size_t replace = diagonal + (word[i - 1] != candidate[j - 1]);
        diagonal = row[j];
        row[j] = std::min({replace, row[j] + 1, row[j - 1] + 1});
      }
    }
    if (row.back() <= best_distance) {
      if (row.back() < best_distance || best.empty()) best = candidate;
      best_distance = row.back();
    }
  }
  return best;
}

}  // namespace godwit
