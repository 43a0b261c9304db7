// A prompt as the cache sees it: its ids, and a key for each block of 64 of them. Keys are chained from the
// salt on, so one key stands for a whole prefix of one tenant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace godwit::cache {

constexpr size_t kBlock = 64;  // tokens of a page

struct Prompt {
  std::span<const int32_t> ids;
  std::span<const uint64_t> keys;  // block_keys(ids, salt)

  std::span<const int32_t> block(int64_t index) const {
    return ids.subspan(static_cast<size_t>(index) * kBlock, kBlock);
  }
  uint64_t key(int64_t index) const { return keys[static_cast<size_t>(index)]; }
};

// One key for each full block. 6 ns an id: made where the prompt is, on no I/O thread and not on the
// engine's. `salt` keeps tenants' prefixes apart.
std::vector<uint64_t> block_keys(std::span<const int32_t> ids, uint64_t salt);

}  // namespace godwit::cache
