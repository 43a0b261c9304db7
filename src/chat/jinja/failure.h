// The room-internal failure of a template. It is thrown by any depth of parser or evaluator and caught in
// template.cpp, which turns it into an Error; it never leaves this folder.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <utility>

namespace godwit::chat::jinja {

struct Failure {
  std::string message;
  uint32_t line = 0;  // 0: the line being evaluated
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure{fmt::format(format, std::forward<Args>(args)...)};
}

template <class... Args>
[[noreturn]] void fail_at(uint32_t line, fmt::format_string<Args...> format, Args&&... args) {
  throw Failure{fmt::format(format, std::forward<Args>(args)...), line};
}

}  // namespace godwit::chat::jinja
