// godwit completion bash|zsh: written from the command tree itself, so it cannot fall behind it.
#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "commands.h"

namespace godwit {
namespace {

// Depth-first list of commands with their words: {"godwit debug render", app}.
void collect(const CLI::App& app, const std::string& path,
             std::vector<std::pair<std::string, const CLI::App*>>& out) {
  out.emplace_back(path, &app);
  for (const CLI::App* sub : app.get_subcommands({})) collect(*sub, path + " " + sub->get_name(), out);
}

std::vector<std::string> words_of(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::App* sub : app.get_subcommands({})) words.push_back(sub->get_name());
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  }
  return words;
}

// Flags whose value is a path are completed by the shell's own file completion.
std::vector<std::string> path_flags(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    if (type.find("FILE") == std::string::npos && type.find("DIR") == std::string::npos) continue;
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

bool path_positional(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    if (option->get_positional() &&
        (type.find("FILE") != std::string::npos || type.find("DIR") != std::string::npos)) {
      return true;
    }
  }
  return false;
}

// One function for both shells: zsh runs it through bashcompinit.
std::string script(const CLI::App& root) {
  std::vector<std::pair<std::string, const CLI::App*>> commands;
  collect(root, "godwit", commands);
  std::string out =
      "_godwit() {\n"
      "  local word=\"${COMP_WORDS[COMP_CWORD]}\" previous=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
      "  local at=godwit next= offers= files= here= i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    next=\"$at ${COMP_WORDS[i]}\"\n"
      "    case \"$next\" in\n      ";
  for (size_t i = 1; i < commands.size(); ++i)
    out += fmt::format("{}\"{}\"", i > 1 ? "|" : "", commands[i].first);
  out += ") at=\"$next\" ;;\n    esac\n  done\n  case \"$at\" in\n";
  for (const auto& [path, app] : commands) {
    out += fmt::format("    \"{}\") offers=\"{}\" files=\"{}\" here={} ;;\n", path,
                       fmt::join(words_of(*app), " "), fmt::join(path_flags(*app), " "),
                       path_positional(*app) ? "1" : "");
  }
  out +=
      "  esac\n"
      "  if [[ \" $files \" == *\" $previous \"* || ( -n \"$here\" && \"$word\" != -* ) ]]; then\n"
      "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
      "  else\n"
      "    COMPREPLY=($(compgen -W \"$offers\" -- \"$word\"))\n"
      "  fi\n"
      "}\n"
      "complete -o filenames -F _godwit godwit\n";
  return out;
}

}  // namespace

void add_completion_command(CLI::App& app, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand("completion", "Print a shell completion script");
  command->footer(
      "Examples:\n"
      "  source <(godwit completion bash)\n"
      "  source <(godwit completion zsh)");
  command->require_subcommand(1);
  command->add_subcommand("bash", "For bash 4 and later")->callback([&app, &run] {
    run = [&app] {
      fmt::print("{}", script(app));
      return 0;
    };
  });
  command->add_subcommand("zsh", "For zsh")->callback([&app, &run] {
    run = [&app] {
      fmt::print("autoload -Uz bashcompinit && bashcompinit\n{}", script(app));
      return 0;
    };
  });
}

}  // namespace godwit
