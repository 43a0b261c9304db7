#include "chat/jinja/unicode.h"

#include <cstdint>

namespace godwit::chat::jinja {
namespace {

constexpr char32_t kReplacement = 0xFFFD;
constexpr char32_t kSharpS = 0xDF;

// Letters that alternate upper, lower, upper, lower … inside [first, last], the first being upper.
struct Alternating {
  char32_t first, last;
};
constexpr Alternating kAlternating[] = {{0x100, 0x12F},   {0x132, 0x137},  {0x139, 0x148}, {0x14A, 0x177},
                                        {0x179, 0x17E},   {0x370, 0x373},  {0x376, 0x377}, {0x3D8, 0x3EF},
                                        {0x460, 0x481},   {0x48A, 0x4BF},  {0x4C1, 0x4CE}, {0x4D0, 0x52F},
                                        {0x1E00, 0x1E95}, {0x1EA0, 0x1EFF}};
// Blocks of lower-case letters whose upper case lies at a constant distance.
struct Shifted {
  char32_t first, last;  // lower case
  int32_t to_upper;
};
constexpr Shifted kShifted[] = {{'a', 'z', -32},     {0xE0, 0xF6, -32},     {0xF8, 0xFE, -32},
                                {0x3B1, 0x3C1, -32}, {0x3C3, 0x3CB, -32},   {0x3AC, 0x3AC, -38},
                                {0x3AD, 0x3AF, -37}, {0x3CC, 0x3CC, -64},   {0x3CD, 0x3CE, -63},
                                {0x430, 0x44F, -32}, {0x450, 0x45F, -80},   {0x4CF, 0x4CF, -15},
                                {0x561, 0x586, -48}, {0xFF41, 0xFF5A, -32}, {0xFF, 0xFF, 0x178 - 0xFF}};

// Letters whose upper case is several letters.
struct Expanding {
  char32_t c;
  std::string_view upper, title;
};
constexpr Expanding kExpanding[] = {{kSharpS, "SS", "Ss"},  {0x149, "ʼN", "ʼN"},  {0xFB00, "FF", "Ff"},
                                    {0xFB01, "FI", "Fi"},   {0xFB02, "FL", "Fl"}, {0xFB03, "FFI", "Ffi"},
                                    {0xFB04, "FFL", "Ffl"}, {0xFB05, "ST", "St"}, {0xFB06, "ST", "St"}};

const Expanding* find_expanding(char32_t c) {
  if (c < kSharpS) return nullptr;
  for (const Expanding& e : kExpanding) {
    if (e.c == c) return &e;
  }
  return nullptr;
}

char32_t simple_upper(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
  switch (c) {  // no lower-case partner points back to these
    case 0xB5:
      return 0x39C;
    case 0x131:
      return 'I';
    case 0x17F:
      return 'S';
    case 0x3C2:
      return 0x3A3;
    default:
      break;
  }
  for (const Shifted& s : kShifted) {
    if (c >= s.first && c <= s.last) return static_cast<char32_t>(static_cast<int32_t>(c) + s.to_upper);
  }
  for (const Alternating& a : kAlternating) {
    if (c >= a.first && c <= a.last) return ((c - a.first) & 1) ? c - 1 : c;
  }
  return c;
}

char32_t simple_lower(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  if (c == 0x130) return 'i';
  if (c == 0x1E9E) return kSharpS;
  for (const Shifted& s : kShifted) {
    const auto lower = static_cast<char32_t>(static_cast<int32_t>(c) - s.to_upper);
    if (lower >= s.first && lower <= s.last) return lower;
  }
  for (const Alternating& a : kAlternating) {
    if (c >= a.first && c <= a.last) return ((c - a.first) & 1) ? c : c + 1;
  }
  return c;
}

}  // namespace

char32_t next_code_point(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(at);
  if (lead < 0x80) return text[at++];
  const size_t length = lead >= 0xF0 && lead < 0xF5   ? 4
                        : lead >= 0xE0 && lead < 0xF0 ? 3
                        : lead >= 0xC2 && lead < 0xE0 ? 2
                                                      : 0;
  if (length == 0 || at + length > text.size()) return ++at, kReplacement;
  char32_t c = lead & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return ++at, kReplacement;
    c = (c << 6) | (byte(at + i) & 0x3F);
  }
  const bool overlong = (length == 3 && c < 0x800) || (length == 4 && c < 0x10000);
  if (overlong || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return ++at, kReplacement;
  at += length;
  return c;
}

void append_code_point(std::string& out, char32_t c) {
  if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) c = kReplacement;
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

size_t count_code_points(std::string_view text) {
  size_t n = 0;
  for (const char c : text) n += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return n;
}

size_t offset_of(std::string_view text, size_t index) {
  size_t at = 0;
  while (index > 0 && at < text.size()) {
    next_code_point(text, at);
    --index;
  }
  return at;
}

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    if (next_code_point(text, at) == kReplacement && at - start == 1) return false;
  }
  return true;
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD) return false;
  if (c < 0x600) return true;
  if (is_space(c)) return false;
  const bool format = (c >= 0x600 && c <= 0x605) || c == 0x61C || c == 0x6DD || c == 0x70F || c == 0x180E ||
                      (c >= 0x200B && c <= 0x200F) || (c >= 0x202A && c <= 0x202E) ||
                      (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFB) ||
                      (c >= 0xE0000 && c <= 0xE007F);
  const bool unused =
      (c >= 0xE000 && c <= 0xF8FF) || (c >= 0xFDD0 && c <= 0xFDEF) || (c & 0xFFFE) == 0xFFFE || c >= 0xF0000;
  return !format && !unused;
}

void append_upper(std::string& out, char32_t c) {
  if (const Expanding* e = find_expanding(c)) {
    out += e->upper;
  } else {
    append_code_point(out, simple_upper(c));
  }
}

void append_lower(std::string& out, char32_t c) {
  append_code_point(out, simple_lower(c));
  if (c == 0x130) append_code_point(out, 0x307);  // I with a dot keeps the dot
}

void append_title(std::string& out, char32_t c) {
  if (const Expanding* e = find_expanding(c)) {
    out += e->title;
  } else {
    append_code_point(out, simple_upper(c));
  }
}

bool is_upper(char32_t c) {
  return simple_lower(c) != c;
}
bool is_lower(char32_t c) {
  return simple_upper(c) != c || find_expanding(c) != nullptr;
}

bool is_letter(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return c == 0xAA || c == 0xB5 || c == 0xBA || (c >= 0xC0 && c != 0xD7 && c != 0xF7 && is_printable(c));
}

}  // namespace godwit::chat::jinja
