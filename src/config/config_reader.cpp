#include "config/config_reader.h"

#include <fmt/format.h>

#include <cmath>

namespace godwit {
namespace {

// A value for a message; long ones are cut.
std::string shown(const Json& value) {
  std::string text = dump_json(value);
  constexpr size_t kLongest = 80;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

}  // namespace

ConfigReader::ConfigReader(const JsonObject* object, std::string path)
    : object_(object), path_(std::move(path)) {}

const Json* ConfigReader::take(std::string_view key) {
  known_.emplace(key);
  return object_ ? object_->find(key) : nullptr;
}

void ConfigReader::missing(std::string_view key) {
  if (error_) return;
  error_ = make_error(ErrorCode::data_refused, std::string(key), "{}.{} is missing", path_, key);
}

void ConfigReader::wrong(std::string_view key, const Json& value, std::string_view supported) {
  if (error_) return;
  error_ = make_error(ErrorCode::data_refused, std::string(key), "{}.{} is {}; supported: {}", path_, key,
                      shown(value), supported);
}

int64_t ConfigReader::integer(std::string_view key, int64_t lowest, int64_t highest) {
  if (auto value = optional_integer(key, lowest, highest)) return *value;
  missing(key);
  return lowest;
}

double ConfigReader::real(std::string_view key, double lowest, double highest) {
  if (auto value = optional_real(key, lowest, highest)) return *value;
  missing(key);
  return lowest;
}

std::optional<int64_t> ConfigReader::optional_integer(std::string_view key, int64_t lowest, int64_t highest) {
  const Json* value = take(key);
  if (!value || value->is_null()) return std::nullopt;
  if (value->is_integer() && value->as_integer() >= lowest && value->as_integer() <= highest) {
    return value->as_integer();
  }
  wrong(key, *value, fmt::format("an integer from {} to {}", lowest, highest));
  return lowest;
}

std::optional<double> ConfigReader::optional_real(std::string_view key, double lowest, double highest) {
  const Json* value = take(key);
  if (!value || value->is_null()) return std::nullopt;
  if (value->is_number()) {
    double number = value->as_double();
    if (number >= lowest && number <= highest) return number;
  }
  wrong(key, *value, fmt::format("a number from {} to {}", lowest, highest));
  return lowest;
}

std::vector<std::string> ConfigReader::strings(std::string_view key, size_t count) {
  const Json* value = take(key);
  if (!value) {
    missing(key);
    return {};
  }
  const std::string supported = fmt::format("an array of {} strings", count);
  if (!value->is_array() || value->as_array().size() != count) {
    if (!error_ && value->is_array()) {
      error_ = make_error(ErrorCode::data_refused, std::string(key), "{}.{} has {} entries; supported: {}",
                          path_, key, value->as_array().size(), supported);
    }
    wrong(key, *value, supported);
    return {};
  }
  std::vector<std::string> out;
  for (const Json& item : value->as_array()) {
    if (!item.is_string()) {
      wrong(key, *value, supported);
      return {};
    }
    out.push_back(item.as_string());
  }
  return out;
}

std::vector<int64_t> ConfigReader::integers(std::string_view key, int64_t lowest, int64_t highest) {
  const Json* value = take(key);
  if (!value || value->is_null()) return {};
  const JsonArray one = {*value};
  const JsonArray& items = value->is_array() ? value->as_array() : one;
  constexpr size_t kMost = 4096;
  std::vector<int64_t> out;
  for (const Json& item : items) {
    bool good = item.is_integer() && item.as_integer() >= lowest && item.as_integer() <= highest;
    if (!good || out.size() == kMost) {
      wrong(key, *value, fmt::format("up to {} integers from {} to {}", kMost, lowest, highest));
      return {};
    }
    out.push_back(item.as_integer());
  }
  return out;
}

const Json* ConfigReader::raw(std::string_view key) {
  return take(key);
}

void ConfigReader::expect(std::string_view key, const Json& only_value) {
  const Json* value = take(key);
  if (value && !(*value == only_value)) wrong(key, *value, shown(only_value));
}

void ConfigReader::expect_required(std::string_view key, const Json& only_value) {
  if (!take(key)) return missing(key);
  expect(key, only_value);
}

void ConfigReader::ignore(std::initializer_list<std::string_view> keys) {
  for (std::string_view key : keys) known_.emplace(key);
}

bool ConfigReader::has(std::string_view key) const {
  return object_ && object_->find(key);
}

void ConfigReader::require(bool holds, std::string_view key, std::string_view supported) {
  if (holds) return;
  const Json* value = take(key);
  if (!value) return missing(key);
  wrong(key, *value, supported);
}

std::vector<std::string> ConfigReader::unknown_keys() const {
  std::vector<std::string> out;
  if (!object_) return out;
  for (const auto& [key, value] : *object_) {
    if (!known_.count(key)) out.push_back(key);
  }
  return out;
}

Result<void> ConfigReader::error() const {
  if (error_) return Error(*error_);
  return {};
}

Result<void> ConfigReader::finish_refusing_unknown() {
  GODWIT_TRY(error());
  std::vector<std::string> unknown = unknown_keys();
  if (unknown.empty()) return {};
  return make_error(
      ErrorCode::data_refused, unknown.front(),
      "{} has keys this engine does not know: {}. They may change what the model computes, so the "
      "model is refused; remove them only if they have no effect",
      path_, fmt::join(unknown, ", "));
}

}  // namespace godwit
