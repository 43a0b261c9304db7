#include "server/fields.h"

#include <cmath>

namespace godwit::server {
namespace {

constexpr size_t kShownBytes = 64;
constexpr JsonLimits kBodyLimits{.depth = 64, .values = 4'000'000};

// JSON has no NaN, but Python's json module writes it. "not JSON at byte 17" would not help that caller.
std::optional<Error> find_non_finite(std::string_view body) {
  for (const std::string_view literal : {"NaN", "Infinity", "-Infinity"}) {
    for (size_t at = body.find(literal); at != body.npos; at = body.find(literal, at + 1)) {
      const size_t colon = body.find_last_not_of(" \t\r\n", at - (at > 0 ? 1 : 0));
      if (at == 0 || colon == body.npos || body[colon] != ':' || colon == 0) continue;
      const size_t close = body.find_last_not_of(" \t\r\n", colon - 1);
      if (close == body.npos || body[close] != '"' || close == 0) continue;
      const size_t open = body.rfind('"', close - 1);
      if (open == body.npos || close - open > kShownBytes) continue;
      const std::string field(body.substr(open + 1, close - open - 1));
      return make_error(ErrorCode::invalid_request, field, "{} must be a finite number, got {}", field,
                        literal);
    }
  }
  return std::nullopt;
}

}  // namespace

std::string and_more(size_t count) {
  return count == 0 ? "" : fmt::format(" (and {} more)", count);
}

std::string describe(const Json& value) {
  switch (value.kind()) {
    case Json::Kind::null:
      return "null";
    case Json::Kind::boolean:
      return value.as_bool() ? "true" : "false";
    case Json::Kind::array:
      return fmt::format("an array of {} items", value.as_array().size());
    case Json::Kind::object:
      return "an object";
    case Json::Kind::string: {
      const std::string& text = value.as_string();
      if (text.size() > kShownBytes) return fmt::format("a string of {} bytes", text.size());
      return dump_json(value);
    }
    default: {
      std::string text = dump_json(value);
      return text.size() > kShownBytes ? fmt::format("a number of {} digits", text.size()) : text;
    }
  }
}

std::string Fields::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

void Fields::keep(Error error) {
  if (!error_) error_ = std::move(error);
}

void Fields::refuse(std::string_view key, std::string message) {
  keep(Error{ErrorCode::invalid_request, fmt::format("{} {}", path_of(key), message), path_of(key)});
}

const Json* Fields::any(std::string_view key) const {
  const Json* value = object_.find(key);
  return value && !value->is_null() ? value : nullptr;
}

bool Fields::has(std::string_view key) const {
  return any(key) != nullptr;
}

std::optional<double> Fields::number(std::string_view key, Range range) {
  const Json* value = any(key);
  if (!value) return std::nullopt;
  if (!value->is_number()) {
    refuse(key, fmt::format("must be a number, got {}", describe(*value)));
    return std::nullopt;
  }
  const double v = value->as_double();
  const bool fits = std::isfinite(v) && (range.low_open ? v > range.low : v >= range.low) && v <= range.high;
  if (!fits) {
    refuse(key,
           fmt::format("must be {} {} and at most {}, got {}", range.low_open ? "greater than" : "at least",
                       range.low, range.high, describe(*value)));
    return std::nullopt;
  }
  return v;
}

std::optional<int64_t> Fields::integer(std::string_view key, int64_t low, int64_t high) {
  const Json* value = any(key);
  if (!value) return std::nullopt;
  // 3.0 is an integer for JavaScript clients.
  const bool whole_real = value->is_real() && std::abs(value->as_double()) < 9e15 &&
                          std::trunc(value->as_double()) == value->as_double();
  if (value->kind() == Json::Kind::big_integer || value->is_integer() || whole_real) {
    if (value->is_integer() || whole_real) {
      const int64_t v = whole_real ? static_cast<int64_t>(value->as_double()) : value->as_integer();
      if (v >= low && v <= high) return v;
    }
    refuse(key, fmt::format("must be at least {} and at most {}, got {}", low, high, describe(*value)));
    return std::nullopt;
  }
  refuse(key, fmt::format("must be an integer, got {}", describe(*value)));
  return std::nullopt;
}

std::optional<bool> Fields::boolean(std::string_view key) {
  const Json* value = any(key);
  if (!value) return std::nullopt;
  if (value->is_bool()) return value->as_bool();
  refuse(key, fmt::format("must be true or false, got {}", describe(*value)));
  return std::nullopt;
}

const std::string* Fields::string(std::string_view key) {
  const Json* value = any(key);
  if (!value) return nullptr;
  if (value->is_string()) return &value->as_string();
  refuse(key, fmt::format("must be a string, got {}", describe(*value)));
  return nullptr;
}

const JsonArray* Fields::array(std::string_view key, size_t max_items) {
  const Json* value = any(key);
  if (!value) return nullptr;
  if (!value->is_array()) {
    refuse(key, fmt::format("must be an array, got {}", describe(*value)));
    return nullptr;
  }
  if (value->as_array().size() > max_items) {
    refuse(key, fmt::format("has {} items, at most {} are allowed", value->as_array().size(), max_items));
    return nullptr;
  }
  return &value->as_array();
}

const Json* Fields::object(std::string_view key) {
  const Json* value = any(key);
  if (!value || value->is_object()) return value;
  refuse(key, fmt::format("must be an object, got {}", describe(*value)));
  return nullptr;
}

Result<Json> parse_body(std::string_view body) {
  if (body.find_first_not_of(" \t\r\n") == body.npos) {
    return make_error(ErrorCode::invalid_request, "", "the request has no body; a JSON object is needed");
  }
  auto parsed = parse_json(body, kBodyLimits);
  if (!parsed) {
    if (auto named = find_non_finite(body)) return std::move(*named);
    parsed.error().message = "the request body is not valid JSON: " + parsed.error().message;
    return std::move(parsed.error());
  }
  if (!parsed->is_object()) {
    return make_error(ErrorCode::invalid_request, "", "the request body must be a JSON object, got {}",
                      describe(*parsed));
  }
  // People send the SDK's argument "extra_body" raw: its members count where the body itself has none.
  JsonObject& body_members = parsed->as_object();
  if (const Json* extra = body_members.find("extra_body"); extra && extra->is_object()) {
    const JsonObject members = extra->as_object();
    body_members.erase("extra_body");
    for (const auto& [key, value] : members)
      if (const Json* own = body_members.find(key); !own || own->is_null()) body_members.set(key, value);
  }
  return parsed;
}

}  // namespace godwit::server
