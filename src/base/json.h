// Json: the one dynamic value of the project (requests, tool schemas, template context, tokenizer.json,
// config.json).
//
// Why not a library type: chat templates and tool schemas need what JSON libraries drop (api spec §2.12):
// member order, int vs. float, integers of any size, null vs. missing. Parsing itself is simdjson's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace godwit {

class Json;
using JsonArray = std::vector<Json>;

// Members in insertion order. A repeated key keeps its first position and takes the last value (Python dict
// rule).
class JsonObject {
 public:
  using Member = std::pair<std::string, Json>;

  const Json* find(std::string_view key) const;  // nullptr when missing
  Json* find(std::string_view key);
  Json& operator[](std::string_view key);  // inserts null when missing
  void set(std::string_view key, Json value);
  bool erase(std::string_view key);
  size_t size() const;
  bool empty() const;
  std::vector<Member>::const_iterator begin() const;
  std::vector<Member>::const_iterator end() const;
  std::vector<Member>::iterator begin();
  std::vector<Member>::iterator end();

 private:
  std::vector<Member> members_;
  std::unordered_map<std::string, size_t>
      index_;  // built beyond kLinear members, so look-up never goes quadratic
};

class Json {
 public:
  enum class Kind : uint8_t { null, boolean, integer, big_integer, real, string, array, object };

  Json() = default;
  Json(std::nullptr_t) {}                                    // NOLINT: implicit on purpose, like all below
  Json(bool value) : v_(value) {}                            // NOLINT
  Json(int value) : v_(static_cast<int64_t>(value)) {}       // NOLINT
  Json(unsigned value) : v_(static_cast<int64_t>(value)) {}  // NOLINT
  Json(int64_t value) : v_(value) {}                         // NOLINT
  Json(uint64_t value);                                      // NOLINT: big_integer beyond int64
  Json(double value) : v_(value) {}                          // NOLINT
  Json(const char* value) : v_(std::string(value)) {}        // NOLINT
  Json(std::string value) : v_(std::move(value)) {}          // NOLINT
  Json(std::string_view value) : v_(std::string(value)) {}   // NOLINT
  Json(JsonArray value);                                     // NOLINT
  Json(JsonObject value);                                    // NOLINT
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();

  static Json big_integer(std::string digits);  // decimal digits with optional '-', outside int64
  static Json object(std::initializer_list<std::pair<std::string_view, Json>> members);

  Kind kind() const { return static_cast<Kind>(v_.index()); }
  bool is_null() const { return kind() == Kind::null; }
  bool is_bool() const { return kind() == Kind::boolean; }
  bool is_integer() const { return kind() == Kind::integer; }  // fits int64
  bool is_number() const { return is_integer() || kind() == Kind::big_integer || kind() == Kind::real; }
  bool is_real() const { return kind() == Kind::real; }
  bool is_string() const { return kind() == Kind::string; }
  bool is_array() const { return kind() == Kind::array; }
  bool is_object() const { return kind() == Kind::object; }

  // The accessors below assert the kind.
  bool as_bool() const;
  int64_t as_integer() const;
  double as_double() const;  // any number
  const std::string& as_string() const;
  std::string& as_string();
  const std::string& as_big_integer() const;  // its digits
  const JsonArray& as_array() const;
  JsonArray& as_array();
  const JsonObject& as_object() const;
  JsonObject& as_object();

  // Member of an object; nullptr when this is no object or the key is missing.
  const Json* find(std::string_view key) const;

  // Deep equality. Numbers compare by value (1 == 1.0); booleans are never numbers.
  friend bool operator==(const Json& a, const Json& b);

 private:
  struct Big {
    std::string digits;
  };
  std::variant<std::monostate, bool, int64_t, Big, double, std::string, std::unique_ptr<JsonArray>,
               std::unique_ptr<JsonObject>>
      v_;
};

struct JsonLimits {
  size_t depth = 128;
  size_t values = 8'000'000;  // nodes in the document
};

// Strict JSON, UTF-8 checked, duplicate keys as in JsonObject, lone surrogates become U+FFFD. Errors are
// invalid_request with the byte offset where parsing stopped, as far as known.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

struct JsonStyle {
  std::string_view item_separator = ", ";  // Python json.dumps defaults; compact() below for the wire
  std::string_view key_separator = ": ";
  bool ensure_ascii = false;
  bool sort_keys = false;
  int indent = -1;  // -1: one line
  static JsonStyle compact() { return {",", ":"}; }
};

// Text equal to Python's json.dumps(value, ensure_ascii=..., separators=..., indent=..., sort_keys=...).
std::string dump_json(const Json& value, const JsonStyle& style = {});
void append_json(std::string& out, const Json& value, const JsonStyle& style = {});
// A quoted JSON string, escaping only '"', '\' and control characters.
void append_json_string(std::string& out, std::string_view text, bool ensure_ascii = false);
// Python's repr of a float: shortest round-trip digits, "1.0", "1e+22", "-0.0".
std::string python_float(double value);

}  // namespace godwit
