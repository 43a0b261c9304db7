// Argument values: what the text between <arg_value> tags means under the tool's schema (api spec §3.3), and
// the JSON object that a call's arguments become, written piece by piece while they arrive (§3.4, §3.5).
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>

#include "chat/schema.h"
#include "chat/tools.h"

namespace godwit::chat {

// The value of a complete raw text. Never fails: what does not fit the schema stays a string.
Json typed_value(std::string_view raw, const Schema& schema);

class ArgumentsWriter {
 public:
  explicit ArgumentsWriter(const Tool& tool) : schema_(tool.schema()) {}

  // Each call appends to `out` what can be sent now; the pieces concatenate to one JSON object. Text is whole
  // UTF-8.
  void open_value(std::string_view key);
  // Strings are streamed; a value of any other type waits for its end, since typing needs all of it.
  void value_text(std::string_view text, std::string& out);
  void close_value(std::string& out);
  // The output was cut inside the value: a streamed string is closed where it is, anything else is dropped,
  // because half of a number is another number.
  void cut_value(std::string& out);
  void finish(std::string& out);

 private:
  void write_key(std::string& out);

  Schema schema_;
  std::unordered_set<std::string> keys_;  // already written
  std::string key_;
  Schema value_schema_;
  std::string raw_;         // of a value that waits
  bool ignored_ = false;    // the key was there before: what has been sent cannot be taken back
  bool streamed_ = false;   // the schema allows nothing but strings
  bool in_string_ = false;  // the opening quote of the value has been written
};

}  // namespace godwit::chat
