// The GLM-4/GLM-5 pre-token pattern as a hand-written matcher: rules 1-5 of api spec §1.3, tried in order at
// each position.
#include <array>
#include <bit>
#include <cstring>

#include "tokenizer/pretokenizer.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace godwit::tokenizer {

const std::string_view kGlmPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

using Byte = unsigned char;
static_assert(std::endian::native == std::endian::little, "ascii_letters() reads bytes in memory order");

// How many of the 8 bytes at p are ASCII letters, counted from the first. A word is found without a branch a
// letter, which is where a plain loop loses most of its time.
unsigned ascii_letters(const Byte* p) {
  constexpr uint64_t kOnes = 0x0101010101010101ull;
  constexpr uint64_t kHigh = 0x80 * kOnes;
  uint64_t word;
  std::memcpy(&word, p, sizeof word);
  uint64_t low = (word | 0x20 * kOnes) & ~kHigh;
  uint64_t from_a = low + (0x80 - 'a') * kOnes;      // high bit: >= 'a'
  uint64_t past_z = low + (0x80 - 'z' - 1) * kOnes;  // high bit: > 'z'
  uint64_t other = ~(from_a & ~past_z & ~word) & kHigh;
  return other == 0 ? 8 : static_cast<unsigned>(std::countr_zero(other)) / 8;
}

class GlmSplitter final : public PreTokenizer {
 public:
  Result<size_t> split(std::string_view segment, size_t at, std::vector<uint32_t>& ends) const override {
    const Byte* begin = reinterpret_cast<const Byte*>(segment.data());
    const Byte* end = begin + segment.size();
    const Byte* p = begin + at;
    for (size_t i = 0; i < kBatch && p < end; ++i) {
      p = piece_end(p, end);
      ends.push_back(static_cast<uint32_t>(p - begin));
    }
    return static_cast<size_t>(p - begin);
  }

 private:
  struct Char {
    CharClass kind;
    unsigned length;
  };

  Char read(const Byte* p) const {
    unsigned length;
    uint32_t code_point = decode_utf8(p, length);
    return {classes_[code_point], length};
  }
  static bool is_space(CharClass kind) { return kind == CharClass::space || kind == CharClass::newline; }

  const Byte* skip_letters(const Byte* p, const Byte* end) const {
    while (end - p >= 8) {
      unsigned n = ascii_letters(p);
      p += n;
      if (n == 8) continue;
      if (*p < 0x80) return p;
      Char c = read(p);
      if (c.kind != CharClass::letter) return p;
      p += c.length;
    }
    while (p < end) {
      Char c = read(p);
      if (c.kind != CharClass::letter) break;
      p += c.length;
    }
    return p;
  }

  // Rule 1: the contraction at the apostrophe p, nullptr when there is none.
  static const Byte* contraction(const Byte* p, const Byte* end) {
    if (end - p < 2) return nullptr;
    Byte a = p[1] | 0x20;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return p + 2;
    if (end - p < 3) return nullptr;
    if (p[1] == 0xC5 && p[2] == 0xBF) return p + 3;  // U+017F folds to 's'
    Byte b = p[2] | 0x20;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return p + 3;
    return nullptr;
  }

  const Byte* piece_end(const Byte* p, const Byte* end) const {
    Char c = read(p);
    if (c.kind == CharClass::letter) return skip_letters(p + c.length, end);
    if (*p == '\'') {
      if (const Byte* e = contraction(p, end)) return e;
    }
    const Byte* next = p + c.length;
    if (c.kind == CharClass::number) {  // rule 3
      for (int i = 1; i < 3 && next < end; ++i) {
        Char n = read(next);
        if (n.kind != CharClass::number) break;
        next += n.length;
      }
      return next;
    }
    if (c.kind != CharClass::newline && next < end) {  // rule 2 with its optional head
      Char n = read(next);
      if (n.kind == CharClass::letter) return skip_letters(next + n.length, end);
    }
    if (c.kind == CharClass::other) return symbols_end(next, end);
    if (*p == ' ' && next < end) {
      Char n = read(next);
      if (n.kind == CharClass::other) return symbols_end(next + n.length, end);
    }
    return spaces_end(p, end);
  }

  // Rule 4 after its first symbol: the run of symbols, then every CR and LF.
  const Byte* symbols_end(const Byte* p, const Byte* end) const {
    while (p < end) {
      Char c = read(p);
      if (c.kind != CharClass::other) break;
      p += c.length;
    }
    while (p < end && (*p == '\n' || *p == '\r')) ++p;
    return p;
  }

  // Rule 5: the white space that begins at p.
  const Byte* spaces_end(const Byte* p, const Byte* end) const {
    const Byte* run = p;
    const Byte* last = p;  // where the last character of the run begins
    const Byte* after_newline = nullptr;
    while (run < end) {
      Char c = read(run);
      if (!is_space(c.kind)) break;
      last = run;
      run += c.length;
      if (c.kind == CharClass::newline) after_newline = run;
    }
    if (after_newline) return after_newline;
    return run == end || last == p ? run : last;
  }

  const CharClass* classes_ = char_classes();
};

}  // namespace

std::unique_ptr<PreTokenizer> make_glm_splitter() {
  return std::make_unique<GlmSplitter>();
}

Result<std::unique_ptr<PreTokenizer>> make_pre_tokenizer(std::string_view pattern) {
  if (pattern == kGlmPattern) return make_glm_splitter();
  return make_regex_splitter(pattern);
}

}  // namespace godwit::tokenizer
