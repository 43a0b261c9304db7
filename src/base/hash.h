// 64-bit FNV-1a with a final mix: page keys, fingerprints, build ids. Not for secrets.
#pragma once

#include <cstdint>
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

inline uint64_t hash_ids(std::span<const int32_t> ids, uint64_t seed = kHashSeed) {
  for (int32_t id : ids) seed = mix64(seed ^ static_cast<uint32_t>(id)) + 0x9e3779b97f4a7c15ull;
  return mix64(seed);
}

}  // namespace godwit
