#include "cache/cache.h"

namespace godwit::cache {

Cache::Cache(const CacheSizes& sizes) : pages_(sizes.pages, 1), slots_(sizes.slots, 1) {}

bool Cache::acquire(std::span<const int32_t>, int64_t tokens, Lease& lease) {
  GODWIT_ASSERT(!lease.held());
  if (slots_.available() == 0 || pages_.available() < pages_for(tokens)) return false;
  lease.slot = slots_.take();
  lease.cached = 0;
  lease.restore = -1;
  return grow(lease, tokens);
}

bool Cache::grow(Lease& lease, int64_t tokens) {
  const int64_t missing = pages_for(tokens) - static_cast<int64_t>(lease.pages.size());
  if (missing > pages_.available()) return false;
  for (int64_t i = 0; i < missing; ++i) lease.pages.push_back(pages_.take());
  return true;
}

void Cache::release(Lease& lease) {
  if (!lease.held()) return;
  for (int32_t page : lease.pages) pages_.give(page);
  lease.pages.clear();
  slots_.give(lease.slot);
  lease.slot = -1;
}

void Cache::commit(const Lease&, std::span<const int32_t>, int64_t) {}

}  // namespace godwit::cache
