// Hashing of pre-tokens: they average five bytes, so a piece of up to 15 is packed into two words and
// compared whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/hash.h"

namespace godwit::tokenizer {

struct PieceKey {
  static constexpr size_t kMaxBytes = 15;
  uint64_t low = 0;
  uint64_t high = 0;  // its top byte is the length, so no two pieces share a key and none is all zero

  friend bool operator==(const PieceKey&, const PieceKey&) = default;
};

inline uint64_t load_word(const char* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

// Bytes [0, size) of p as a little-endian number; size 0..7. The overlapping loads never leave the piece.
inline uint64_t load_partial(const char* p, size_t size) {
  if (size >= 4) {
    uint32_t first, last;
    std::memcpy(&first, p, 4);
    std::memcpy(&last, p + size - 4, 4);
    return first | static_cast<uint64_t>(last) << (8 * (size - 4));
  }
  if (size == 0) return 0;
  auto byte = [&](size_t i) { return static_cast<uint64_t>(static_cast<unsigned char>(p[i])); };
  return byte(0) | byte(size / 2) << (8 * (size / 2)) | byte(size - 1) << (8 * (size - 1));
}

// piece: 1..kMaxBytes bytes.
inline PieceKey make_piece_key(std::string_view piece) {
  const char* p = piece.data();
  size_t size = piece.size();
  uint64_t tag = static_cast<uint64_t>(size) << 56;
  if (size < 8) return {load_partial(p, size), tag};
  if (size == 8) return {load_word(p), tag};
  return {load_word(p), load_word(p + size - 8) >> (8 * (16 - size)) | tag};
}

inline uint64_t hash_key(const PieceKey& key) {
  __extension__ using Wide = unsigned __int128;
  Wide product = static_cast<Wide>(key.low ^ 0x9e3779b97f4a7c15ull) * (key.high ^ 0xe7037ed1a0b428dbull);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t hash_piece(std::string_view piece) {
  return piece.size() - 1 < PieceKey::kMaxBytes ? hash_key(make_piece_key(piece)) : godwit::hash_bytes(piece);
}

}  // namespace godwit::tokenizer
