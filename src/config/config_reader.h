// Reads the members of one JSON object strictly: each key is asked for once with its limits, and at the end
// every key that nobody asked for is known. The first error sticks; reads after it return harmless values.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace godwit {

class ConfigReader {
 public:
  // `object` may be nullptr: then every key is missing. `path` starts messages: "config.json: text_config".
  ConfigReader(const JsonObject* object, std::string path);

  int64_t integer(std::string_view key, int64_t lowest, int64_t highest);  // required
  double real(std::string_view key, double lowest, double highest);  // required, finite; limits included
  std::optional<int64_t> optional_integer(std::string_view key, int64_t lowest, int64_t highest);
  std::optional<double> optional_real(std::string_view key, double lowest, double highest);
  std::vector<std::string> strings(std::string_view key, size_t count);  // required, of that length
  // One integer or an array of them; empty when the key is missing or null.
  std::vector<int64_t> integers(std::string_view key, int64_t lowest, int64_t highest);
  const Json* raw(std::string_view key);  // nullptr when missing; the caller checks it

  // Behaviour that is built in: the key may be missing, but may not say anything else.
  void expect(std::string_view key, const Json& only_value);
  void expect_required(std::string_view key, const Json& only_value);
  void ignore(std::initializer_list<std::string_view> keys);  // known and without effect on serving

  bool has(std::string_view key) const;
  // "KEY is VALUE; supported: TEXT" unless `holds`.
  void require(bool holds, std::string_view key, std::string_view supported);

  bool ok() const { return !error_; }
  std::vector<std::string> unknown_keys() const;
  Result<void> error() const;              // the first error
  Result<void> finish_refusing_unknown();  // the first error, else one that lists the unknown keys

 private:
  const Json* take(std::string_view key);
  void missing(std::string_view key);
  void wrong(std::string_view key, const Json& value, std::string_view supported);

  const JsonObject* object_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
  std::optional<Error> error_;
};

}  // namespace godwit
