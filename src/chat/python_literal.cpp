#include "chat/python_literal.h"

#include <charconv>
#include <string>

#include "chat/item.h"
#include "tokenizer/utf8.h"

namespace godwit::chat {
namespace {

// Rewrites a Python literal as JSON text token by token: the JSON parser then judges the structure with its
// limits.
class Translator {
 public:
  explicit Translator(std::string_view text) : rest_(text) {}

  bool run() {
    while (!rest_.empty()) {
      char c = rest_.front();
      if (c == '\'' || c == '"') {
        if (!string()) return false;
      } else if (is_word(c)) {
        if (!word()) return false;
      } else {
        punctuation(c);
      }
    }
    return true;
  }
  const std::string& json() const { return json_; }

 private:
  static bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

  void punctuation(char c) {
    rest_.remove_prefix(1);
    if (is_blank(c)) return;
    // Python allows a comma before the closing bracket, JSON does not.
    if ((c == ']' || c == '}') && json_.ends_with(',')) json_.pop_back();
    json_ += c;
  }

  bool word() {
    static constexpr std::pair<std::string_view, std::string_view> kWords[] = {
        {"True", "true"}, {"False", "false"}, {"None", "null"},
        {"true", "true"}, {"false", "false"}, {"null", "null"}};
    size_t n = 0;
    while (n < rest_.size() && is_word(rest_[n])) ++n;
    std::string_view name = rest_.substr(0, n);
    rest_.remove_prefix(n);
    if ((name == "e" || name == "E") && !json_.empty()) {  // the exponent of a number
      json_ += name;
      return true;
    }
    for (const auto& [python, json] : kWords) {
      if (name != python) continue;
      json_ += json;
      return true;
    }
    return false;
  }

  bool string() {
    char quote = rest_.front();
    rest_.remove_prefix(1);
    std::string text;
    while (!rest_.empty() && rest_.front() != quote) {
      char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == '\n') return false;
      if (c != '\\') {
        text += c;
      } else if (!escape(text)) {
        return false;
      }
    }
    if (rest_.empty()) return false;
    rest_.remove_prefix(1);
    append_json_string(json_, text);
    return true;
  }

  bool escape(std::string& text) {
    static constexpr std::string_view kNames = "\\'\"abfnrtv\n";
    static constexpr std::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
    if (rest_.empty()) return false;
    char c = rest_.front();
    rest_.remove_prefix(1);
    size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits > 0) {
      uint32_t code_point = 0;
      if (rest_.size() < digits) return false;
      auto end = std::from_chars(rest_.data(), rest_.data() + digits, code_point, 16);
      if (end.ec != std::errc() || end.ptr != rest_.data() + digits || code_point > 0x10ffff) return false;
      rest_.remove_prefix(digits);
      if (code_point >= 0xd800 && code_point < 0xe000) code_point = 0xfffd;
      tokenizer::append_utf8(text, code_point);
      return true;
    }
    size_t i = kNames.find(c);
    if (i < kValues.size()) {
      text += kValues[i];
    } else if (i == kNames.npos) {  // Python keeps the backslash of an escape it does not know
      text += {'\\', c};
    }
    return true;
  }

  std::string_view rest_;
  std::string json_;
};

}  // namespace

std::optional<Json> parse_python_literal(std::string_view text) {
  text = trim_blank(text);
  if (text.empty() || (text.front() != '[' && text.front() != '{')) return std::nullopt;
  Translator translator(text);
  if (!translator.run()) return std::nullopt;
  auto value = parse_json(translator.json());
  if (!value.ok()) return std::nullopt;
  return std::move(value).value();
}

}  // namespace godwit::chat
