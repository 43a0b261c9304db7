// One logger for the process. Prompts and secrets are never passed to it (house rule 8).
#pragma once

#include <spdlog/spdlog.h>

#include <string_view>

namespace godwit {

// level: trace|debug|info|warn|error|off. Lines go to stderr; stdout belongs to the commands' results.
void start_logging(std::string_view level);

template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  spdlog::info(format, std::forward<Args>(args)...);
}
template <class... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  spdlog::warn(format, std::forward<Args>(args)...);
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  spdlog::error(format, std::forward<Args>(args)...);
}

}  // namespace godwit
