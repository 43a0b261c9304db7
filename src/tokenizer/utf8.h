// UTF-8 as the tokenizer needs it: strict decoding, and replacement by maximal ill-formed subsequences (the
// WHATWG rule, which is also what Rust and Python do: api spec §1.4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace godwit::tokenizer {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Utf8Step {
  enum class Kind : uint8_t {
    complete,    // one code point
    invalid,     // a maximal ill-formed subsequence: becomes one U+FFFD
    incomplete,  // the text ends inside a sequence that may still become valid
  };
  Kind kind;
  uint8_t length;  // bytes, 1..4
};

// What the non-empty `bytes` begin with.
Utf8Step next_utf8(std::string_view bytes);

// The code point at p of text known to be well formed; `length` receives its bytes.
inline uint32_t decode_utf8(const unsigned char* p, unsigned& length) {
  if (p[0] < 0x80) return length = 1, p[0];
  if (p[0] < 0xE0) return length = 2, (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
  if (p[0] < 0xF0) return length = 3, (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
  return length = 4, (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}

void append_utf8(std::string& out, uint32_t code_point);

bool is_utf8(std::string_view text);
// `text` with each maximal ill-formed subsequence, and an unfinished end, replaced by one U+FFFD.
std::string replace_malformed(std::string_view text);

}  // namespace godwit::tokenizer
