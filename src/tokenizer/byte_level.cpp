#include "tokenizer/byte_level.h"

#include <array>

#include "tokenizer/utf8.h"

namespace godwit::tokenizer {
namespace {

constexpr uint32_t kFirstMoved = 0x100;  // unprintable bytes move to U+0100, U+0101, ... in byte order
constexpr uint32_t kMoved = 68;

constexpr bool printable(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<uint32_t, 256> code_point{};
  std::array<uint8_t, kMoved> moved{};
  constexpr Alphabet() {
    uint32_t next = 0;
    for (unsigned byte = 0; byte < 256; ++byte) {
      if (printable(byte)) {
        code_point[byte] = byte;
      } else {
        moved[next] = static_cast<uint8_t>(byte);
        code_point[byte] = kFirstMoved + next++;
      }
    }
  }
};
constexpr Alphabet kAlphabet;

}  // namespace

uint32_t byte_to_code_point(uint8_t byte) {
  return kAlphabet.code_point[byte];
}

bool decode_byte_level(std::string_view written, std::string& out) {
  for (size_t i = 0; i < written.size();) {
    unsigned length = 0;
    uint32_t c = decode_utf8(reinterpret_cast<const unsigned char*>(written.data()) + i, length);
    i += length;
    if (c >= kFirstMoved && c < kFirstMoved + kMoved) {
      out.push_back(static_cast<char>(kAlphabet.moved[c - kFirstMoved]));
    } else if (c < 256 && printable(c)) {
      out.push_back(static_cast<char>(c));
    } else {
      return false;
    }
  }
  return true;
}

std::string encode_byte_level(std::string_view bytes) {
  std::string out;
  for (char c : bytes) append_utf8(out, byte_to_code_point(static_cast<uint8_t>(c)));
  return out;
}

}  // namespace godwit::tokenizer
