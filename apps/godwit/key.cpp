// godwit key: a new API key, and its line for --api-key-file.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <array>

#include "base/sha256.h"
#include "commands.h"
#include "config/flag_values.h"

namespace godwit {
namespace {

struct KeyOptions {
  std::string name;
  int64_t concurrent = 0;
  int64_t per_minute = 0;
  bool isolated = false;
};

// 256 bits from the kernel.
Result<std::string> draw_key() {
  Sha256 bytes;
  if (getentropy(bytes.data(), bytes.size()) != 0)
    return make_error(ErrorCode::internal, "", "the system gives no random bytes");
  return "gw-" + hex(bytes);
}

int make_key(const KeyOptions& options) {
  const auto key = draw_key();
  if (!key) return report_failure(key.error());
  fmt::print(stderr, "The key of {}, shown only here:\n", options.name);
  fmt::print(stderr, "{}\n", *key);
  if (isatty(STDOUT_FILENO) == 1) fmt::print(stderr, "Its line for the file of --api-key-file:\n");
  fmt::print("{} sha256:{}", options.name, hex(sha256(*key)));
  if (options.concurrent > 0) fmt::print(" concurrent={}", options.concurrent);
  if (options.per_minute > 0) fmt::print(" per-minute={}", options.per_minute);
  fmt::print("{}\n", options.isolated ? " isolated" : "");
  return 0;
}

}  // namespace

void add_key_command(CLI::App& app, std::function<int()>& run) {
  auto options = std::make_shared<KeyOptions>();
  CLI::App* command = app.add_subcommand("key", "Make an API key: godwit key alice >> keys.txt");
  command->add_option("NAME", options->name, "What logs and metrics call the key")
      ->required()
      ->check(CLI::Validator(
          [](std::string& name) -> std::string {
            const bool fits = !name.empty() && name.size() <= 64 &&
                              name.find_first_not_of(
                                  "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "-_.") == name.npos;
            return fits ? "" : name + " may only have letters, digits, '-', '_' and '.', and 64 of them";
          },
          ""));
  command->add_option("--concurrent", options->concurrent, "Requests it may have at once")
      ->type_name("N")
      ->transform(whole_number(1, 1'000'000'000));
  command->add_option("--per-minute", options->per_minute, "Requests it may send in a minute")
      ->type_name("N")
      ->transform(whole_number(1, 1'000'000'000));
  command->add_flag("--isolated", options->isolated, "Share no cached prefix with other keys");
  command->callback([options, &run] { run = [options] { return make_key(*options); }; });
}

}  // namespace godwit
