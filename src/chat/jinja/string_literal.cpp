#include "chat/jinja/string_literal.h"

#include <charconv>

#include "chat/jinja/failure.h"
#include "chat/jinja/unicode.h"

namespace godwit::chat::jinja {
namespace {

// The character that a one-letter escape stands for, or '\0'.
char simple_escape(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'a':
      return '\a';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case '\\':
    case '\'':
    case '"':
      return c;
    default:
      return '\0';
  }
}

// Reads exactly `count` hexadecimal digits.
char32_t hex(std::string_view body, size_t& i, size_t count, uint32_t line) {
  const std::string_view digits = body.substr(i, count);
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (digits.size() != count || error != std::errc() || end != digits.data() + count || value > 0x10FFFF) {
    fail_at(line, "string has a bad escape '\\{}{}', which needs {} hexadecimal digits of a code point",
            body[i - 1], digits, count);
  }
  i += count;
  return value;
}

bool is_surrogate(char32_t c, char32_t base) {
  return c >= base && c < base + 0x400;
}

}  // namespace

std::string decode_string_literal(std::string_view body, uint32_t line) {
  std::string out;
  out.reserve(body.size());
  for (size_t i = 0; i < body.size();) {
    if (body[i] != '\\' || i + 1 >= body.size()) {
      out += body[i++];
      continue;
    }
    const char c = body[i + 1];
    i += 2;
    if (const char simple = simple_escape(c); simple != '\0') {
      out += simple;
    } else if (c == '\n') {
      continue;  // a line break inside the literal
    } else if (c == 'x') {
      append_code_point(out, hex(body, i, 2, line));
    } else if (c == 'u') {
      char32_t unit = hex(body, i, 4, line);
      if (is_surrogate(unit, 0xD800) && body.substr(i, 2) == "\\u") {
        size_t after = i + 2;
        const char32_t low = hex(body, after, 4, line);
        if (is_surrogate(low, 0xDC00)) {
          unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
          i = after;
        }
      }
      append_code_point(out, unit);
    } else if (c == 'U') {
      append_code_point(out, hex(body, i, 8, line));
    } else if (c >= '0' && c <= '7') {
      char32_t value = static_cast<char32_t>(c - '0');
      for (int n = 1; n < 3 && i < body.size() && body[i] >= '0' && body[i] <= '7'; ++n) {
        value = value * 8 + static_cast<char32_t>(body[i++] - '0');
      }
      append_code_point(out, value);
    } else if (c == 'N') {
      fail_at(line, "named characters (\\N) are not supported in strings; write the character itself");
    } else {
      out += '\\';
      out += c;
    }
  }
  return out;
}

}  // namespace godwit::chat::jinja
