// The byte-level alphabet of GPT-2 (api spec §1.3 rule 3): in tokenizer.json every byte of a token is written
// as one printable code point. Here tokens are kept as bytes; the alphabet appears only while reading and
// writing files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace godwit::tokenizer {

// The code point that stands for `byte`.
uint32_t byte_to_code_point(uint8_t byte);
// Appends the bytes that `written` (well-formed UTF-8) stands for; false when a code point is outside the
// alphabet.
bool decode_byte_level(std::string_view written, std::string& out);
std::string encode_byte_level(std::string_view bytes);

}  // namespace godwit::tokenizer
