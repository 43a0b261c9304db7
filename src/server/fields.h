// Typed, range-checked access to the members of one JSON object of a request. Every number a client sends is
// checked here (pains Q9): messages name the field's path, the value and the limit.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace godwit::server {

struct Range {
  double low;
  double high;
  bool low_open = false;  // low itself is refused
};

// The getters give nothing for members that are missing or null, and for those that are refused; the first
// refusal is kept and every later one ignored, so a caller reads all fields and looks at error() once.
class Fields {
 public:
  // `path` is the prefix of messages: "" for the body, "stream_options" for that object.
  Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {}

  bool has(std::string_view key) const;  // present and not null
  const Json* any(std::string_view key) const;
  std::optional<double> number(std::string_view key, Range range);
  std::optional<int64_t> integer(std::string_view key, int64_t low, int64_t high);
  std::optional<bool> boolean(std::string_view key);
  const std::string* string(std::string_view key);
  const JsonArray* array(std::string_view key, size_t max_items);
  const Json* object(std::string_view key);

  void refuse(std::string_view key, std::string message);  // as invalid_request
  void keep(Error error);
  std::string path_of(std::string_view key) const;
  const std::optional<Error>& error() const { return error_; }

 private:
  const Json& object_;
  std::string path_;
  std::optional<Error> error_;
};

// "a string", "the number 3", …: how messages speak of a value; long ones are cut.
std::string describe(const Json& value);

// What one request does wrong many times is one line of the log: " (and 7 more)" of them; "" for 0.
std::string and_more(size_t count);

// A request body ▶ object, the members of a literal "extra_body" among its own (api spec §4.5). Errors:
// invalid_request with the byte offset; a bare NaN or Infinity is named with its member.
Result<Json> parse_body(std::string_view body);

}  // namespace godwit::server
