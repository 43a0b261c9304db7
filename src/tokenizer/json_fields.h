// Strict access to the members of a simdjson document: every error names the file and the field.
#pragma once

#include <fmt/core.h>
#include <simdjson.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace godwit::tokenizer {

// A JSON value with its path from the root, such as "added_tokens[3].content".
struct JsonField {
  std::string_view file;
  std::string path;
  simdjson::dom::element value;

  template <class... Args>
  Error refuse(fmt::format_string<Args...> format, Args&&... args) const {
    return Error{ErrorCode::data_refused,
                 fmt::format("{}: {}: {}", file, path, fmt::format(format, std::forward<Args>(args)...)),
                 path};
  }

  bool is_null() const { return value.is_null(); }
  bool is_string() const { return value.is_string(); }
  JsonField child(std::string_view key, simdjson::dom::element element) const;
  JsonField item(size_t index, simdjson::dom::element element) const;

  Result<simdjson::dom::object> object() const;
  Result<simdjson::dom::array> array() const;
  Result<std::string_view> string() const;
  Result<bool> boolean() const;
  Result<int64_t> integer(int64_t low, int64_t high) const;
  // Required member of an object.
  Result<JsonField> member(std::string_view key) const;
  // Optional member of an object: missing and null are the same.
  Result<std::optional<JsonField>> optional(std::string_view key) const;
  Result<bool> flag(std::string_view key) const;  // missing is false
  // Refuses members outside `known`, and repeated ones.
  Result<void> only(std::initializer_list<std::string_view> known) const;
  Result<void> must_be_null(std::string_view key) const;
  Result<void> must_be_false(std::string_view key) const;  // or missing
};

// `text` short enough for a message.
std::string clip(std::string_view text);

}  // namespace godwit::tokenizer
