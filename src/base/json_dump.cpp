// Serialisation equal to Python's json.dumps: chat templates and tool arguments are trained on that exact
// text.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/json.h"

namespace godwit {
namespace {

// Reads one code point at `i`; a byte that starts none counts as U+FFFD.
uint32_t next_code_point(std::string_view text, size_t& i) {
  auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  uint32_t c = byte(i++);
  int more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : c >= 0xc0 ? 1 : 0;
  if (c < 0x80) return c;
  if (more == 0) return 0xfffd;
  c &= 0x3fu >> more;
  for (; more > 0; --more) {
    if (i == text.size() || (byte(i) & 0xc0) != 0x80) return 0xfffd;
    c = (c << 6) | (byte(i++) & 63u);
  }
  return c;
}

class Writer {
 public:
  Writer(std::string& out, const JsonStyle& style) : out_(out), style_(style) {
    // Python drops the blank after the comma when it breaks lines, unless separators say otherwise.
    if (style_.indent >= 0 && style_.item_separator == ", ") style_.item_separator = ",";
  }

  void value(const Json& v, int level) {
    switch (v.kind()) {
      case Json::Kind::null:
        out_ += "null";
        return;
      case Json::Kind::boolean:
        out_ += v.as_bool() ? "true" : "false";
        return;
      case Json::Kind::integer:
        out_ += std::to_string(v.as_integer());
        return;
      case Json::Kind::big_integer:
        out_ += v.as_big_integer();
        return;
      case Json::Kind::real:
        real(v.as_double());
        return;
      case Json::Kind::string:
        append_json_string(out_, v.as_string(), style_.ensure_ascii);
        return;
      case Json::Kind::array:
        array(v.as_array(), level);
        return;
      case Json::Kind::object:
        object(v.as_object(), level);
        return;
    }
  }

 private:
  void real(double x) {
    if (std::isfinite(x)) {
      out_ += python_float(x);
    } else {
      out_ += std::isnan(x) ? "NaN" : x > 0 ? "Infinity" : "-Infinity";
    }
  }

  void array(const JsonArray& items, int level) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(level + 1);
      value(items[i], level + 1);
    }
    new_line(level);
    out_ += ']';
  }

  void object(const JsonObject& object, int level) {
    if (object.empty()) {
      out_ += "{}";
      return;
    }
    std::vector<const JsonObject::Member*> members;
    members.reserve(object.size());
    for (const auto& member : object) members.push_back(&member);
    if (style_.sort_keys) {  // byte order of UTF-8 is code point order, as Python sorts
      std::sort(members.begin(), members.end(), [](auto* a, auto* b) { return a->first < b->first; });
    }
    out_ += '{';
    for (size_t i = 0; i < members.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(level + 1);
      append_json_string(out_, members[i]->first, style_.ensure_ascii);
      out_ += style_.key_separator;
      value(members[i]->second, level + 1);
    }
    new_line(level);
    out_ += '}';
  }

  void new_line(int level) {
    if (style_.indent < 0) return;
    out_ += '\n';
    out_.append(static_cast<size_t>(level) * static_cast<size_t>(style_.indent), ' ');
  }

  std::string& out_;
  JsonStyle style_;
};

void append_unit(std::string& out, uint32_t unit) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  out += {'\\',
          'u',
          kDigits[unit >> 12],
          kDigits[(unit >> 8) & 15],
          kDigits[(unit >> 4) & 15],
          kDigits[unit & 15]};
}

}  // namespace

std::string dump_json(const Json& value, const JsonStyle& style) {
  std::string out;
  append_json(out, value, style);
  return out;
}

void append_json(std::string& out, const Json& value, const JsonStyle& style) {
  Writer(out, style).value(value, 0);
}

void append_json_string(std::string& out, std::string_view text, bool ensure_ascii) {
  constexpr std::string_view kValues = "\"\\\b\f\n\r\t";
  constexpr std::string_view kNames = "\"\\bfnrt";
  out += '"';
  size_t i = 0;
  while (i < text.size()) {
    size_t run = i;
    auto plain = [&](unsigned char c) {
      return c >= 0x20 && c != '"' && c != '\\' && !(ensure_ascii && c >= 0x7f);
    };
    while (i < text.size() && plain(static_cast<unsigned char>(text[i]))) ++i;
    out.append(text.substr(run, i - run));
    if (i == text.size()) break;
    if (size_t k = kValues.find(text[i]); k != kValues.npos) {
      out += {'\\', kNames[k]};
      ++i;
      continue;
    }
    uint32_t c = next_code_point(text, i);
    if (c >= 0x10000) {
      append_unit(out, 0xd800 + ((c - 0x10000) >> 10));
      append_unit(out, 0xdc00 + ((c - 0x10000) & 0x3ff));
    } else {
      append_unit(out, c);
    }
  }
  out += '"';
}

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // Shortest digits as d[.ddd]e±xx, then laid out by Python's rule: exponent form below 1e-4 and from 1e16.
  char buffer[40];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), end.ptr, exponent);
  if (exponent < -4 || exponent >= 16) return std::string(text);

  std::string out(text.front() == '-' ? "-" : "");
  std::string digits;
  for (char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

}  // namespace godwit
