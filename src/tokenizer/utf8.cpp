#include "tokenizer/utf8.h"

#include <simdjson.h>

namespace godwit::tokenizer {

Utf8Step next_utf8(std::string_view bytes) {
  using Kind = Utf8Step::Kind;
  auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  unsigned char lead = at(0);
  if (lead < 0x80) return {Kind::complete, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Kind::invalid, 1};
  unsigned need = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (unsigned i = 1; i < need; ++i) {
    if (i == bytes.size()) return {Kind::incomplete, static_cast<uint8_t>(i)};
    // The second byte's range excludes overlong forms, surrogates and code points past U+10FFFF.
    unsigned low = i > 1 ? 0x80 : lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned high = i > 1 ? 0xBF : lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (at(i) < low || at(i) > high) return {Kind::invalid, static_cast<uint8_t>(i)};
  }
  return {Kind::complete, static_cast<uint8_t>(need)};
}

void append_utf8(std::string& out, uint32_t c) {
  auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      put(0xE0 | c >> 12);
    } else {
      put(0xF0 | c >> 18);
      put(0x80 | (c >> 12 & 0x3F));
    }
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

bool is_utf8(std::string_view text) {
  return simdjson::validate_utf8(text.data(), text.size());
}

std::string replace_malformed(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    Utf8Step step = next_utf8(text);
    if (step.kind == Utf8Step::Kind::complete) {
      out.append(text.substr(0, step.length));
    } else {
      out.append(kReplacement);
    }
    text.remove_prefix(step.length);
  }
  return out;
}

}  // namespace godwit::tokenizer
