// Result<T>: a value or an Error, at every boundary a user can reach. Exceptions never cross a room.
#pragma once

#include <fmt/core.h>

#include <optional>
#include <utility>
#include <variant>

#include "base/error.h"

namespace godwit {

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit on purpose
  Result(Error error) : v_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit on purpose

  bool ok() const { return v_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<0>(v_); }
  const T& value() const& { return std::get<0>(v_); }
  T&& value() && { return std::get<0>(std::move(v_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  Error& error() { return std::get<1>(v_); }
  const Error& error() const { return std::get<1>(v_); }

 private:
  std::variant<T, Error> v_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit on purpose
  bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  Error& error() { return *error_; }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

// make_error(ErrorCode::data_refused, "model.safetensors", "header is {} bytes, limit {}", n, limit)
template <class... Args>
Error make_error(ErrorCode code, std::string field, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...), std::move(field)};
}

// GODWIT_TRY(expr): returns the error of a Result<void>-like expression from the enclosing function.
#define GODWIT_TRY(expr)                                                                     \
  do {                                                                                       \
    if (auto godwit_try_ = (expr); !godwit_try_.ok()) return std::move(godwit_try_.error()); \
  } while (false)

// GODWIT_ASSIGN(auto x, expr): binds the value of a Result, or returns its error.
#define GODWIT_CONCAT_(a, b) a##b
#define GODWIT_CONCAT(a, b) GODWIT_CONCAT_(a, b)
#define GODWIT_ASSIGN(decl, expr) GODWIT_ASSIGN_(GODWIT_CONCAT(godwit_r_, __LINE__), decl, expr)
#define GODWIT_ASSIGN_(tmp, decl, expr)         \
  auto tmp = (expr);                            \
  if (!tmp.ok()) return std::move(tmp.error()); \
  decl = std::move(tmp).value()

}  // namespace godwit
