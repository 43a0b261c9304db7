// Cache: who holds which pages and state slots (design §9). A plain data structure: it knows indices, never
// tensors. A request holds a Lease from admission to its end; the lease is the only way to pages and slots,
// and giving it back is the only way they are freed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cache/index_pool.h"

namespace godwit::cache {

constexpr int64_t kPageTokens = 64;

constexpr int64_t pages_for(int64_t tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

// Why a prompt (or the rest of it) was not in the cache.
enum class MissReason : uint8_t { none, disabled, too_short, no_snapshot, evicted, first_difference };

struct Lease {
  int32_t slot = -1;           // -1: holds nothing
  std::vector<int32_t> pages;  // page i holds positions [64 i, 64 i + 64)
  int64_t cached = 0;          // leading tokens that need no prefill, a multiple of 64
  int32_t restore = -1;        // snapshot to restore into `slot` before the first row; -1 = none
  MissReason miss = MissReason::disabled;
  int64_t first_difference_at = -1;

  bool held() const { return slot >= 0; }
  int64_t tokens() const { return static_cast<int64_t>(pages.size()) * kPageTokens; }
};

struct CacheSizes {
  int32_t pages = 0;  // with the reserved page 0
  int32_t slots = 0;  // with the reserved slot 0
};

class Cache {
 public:
  explicit Cache(const CacheSizes& sizes);

  // Takes a slot and pages for `tokens` positions, or nothing at all. `lease.pages` must have the capacity.
  bool acquire(std::span<const int32_t> prompt, int64_t tokens, Lease& lease);
  // More pages, up to `tokens` positions; all or nothing.
  bool grow(Lease& lease, int64_t tokens);
  void release(Lease& lease);

  // The one commit point: what prefill has written of [0, position) becomes visible to later requests, as a
  // unit.
  void commit(const Lease& lease, std::span<const int32_t> prompt, int64_t position);

  int32_t pages_used() const { return pages_.used(); }
  int32_t pages_capacity() const { return pages_.capacity(); }
  int32_t slots_used() const { return slots_.used(); }
  int32_t slots_capacity() const { return slots_.capacity(); }

 private:
  IndexPool pages_;
  IndexPool slots_;
};

}  // namespace godwit::cache
