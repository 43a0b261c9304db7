// 64-bit FNV-1a with a final mix: page keys, fingerprints, build ids. Not for secrets.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace godwit {

constexpr uint64_t kHashSeed = 0xcbf29ce484222325ull;

constexpr uint64_t mix64(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ull;
  return x ^ (x >> 33);
}

constexpr uint64_t hash_bytes(std::string_view bytes, uint64_t seed = kHashSeed) {
  for (unsigned char c : bytes) seed = (seed ^ c) * 0x100000001b3ull;
  return mix64(seed);
}

// For large blocks: eight bytes at a time in four lanes. Not the value of hash_bytes.
inline uint64_t checksum(const void* data, int64_t bytes) {
  uint64_t lanes[4] = {kHashSeed, kHashSeed + 1, kHashSeed + 2, kHashSeed + 3};
  const char* p = static_cast<const char*>(data);
  int64_t i = 0;
  for (; i + 32 <= bytes; i += 32)
    for (int l = 0; l < 4; ++l) {
      uint64_t word;
      std::memcpy(&word, p + i + 8 * l, 8);
      lanes[l] = (lanes[l] ^ word) * 0x9e3779b97f4a7c15ull;
      lanes[l] ^= lanes[l] >> 29;
    }
  uint64_t sum = hash_bytes({p + i, static_cast<size_t>(bytes - i)});
  for (uint64_t lane : lanes) sum = mix64(sum ^ lane);
  return sum;
}

inline uint64_t hash_ids(std::span<const int32_t> ids, uint64_t seed = kHashSeed) {
  for (int32_t id : ids) seed = mix64(seed ^ static_cast<uint32_t>(id)) + 0x9e3779b97f4a7c15ull;
  return mix64(seed);
}

}  // namespace godwit
