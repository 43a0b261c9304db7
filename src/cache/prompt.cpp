#include "cache/prompt.h"

#include "base/hash.h"

namespace godwit::cache {

std::vector<uint64_t> block_keys(std::span<const int32_t> ids, uint64_t salt) {
  std::vector<uint64_t> keys;
  keys.reserve(ids.size() / kBlock);
  uint64_t key = mix64(salt ^ kHashSeed);
  for (size_t at = 0; at + kBlock <= ids.size(); at += kBlock) {
    key = hash_ids(ids.subspan(at, kBlock), key);
    keys.push_back(key);
  }
  return keys;
}

}  // namespace godwit::cache
