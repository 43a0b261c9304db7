#include "model/glm5_next/host_pool.h"

#include "base/fault.h"
#include "base/hash.h"

namespace godwit::model {

using cache::Move;

void HostPool::Pool::size(int64_t records, int64_t record) {
  record_bytes = record;
  bytes = Buffer(static_cast<size_t>(records * record));
  sums.assign(static_cast<size_t>(records), 0);
}

HostPool::HostPool(kernels::Memory& memory, const StateLayout& layout, const cache::HostSizes& sizes)
    : memory_(memory) {
  pool_of(Move::What::page).size(sizes.pages, layout.page_bytes);
  pool_of(Move::What::snapshot).size(sizes.snapshots, layout.committed_bytes);
  pool_of(Move::What::slot).size(sizes.slots, layout.slot_bytes);
}

void HostPool::run(const std::vector<Move>& moves, RankState& state, std::vector<int32_t>& damaged) {
  const auto record = [&](Move::What what, int32_t i) {
    return what == Move::What::page       ? state.page(i)
           : what == Move::What::snapshot ? state.snapshot(i)
                                          : state.slot(i);
  };
  for (const Move& m : moves) {
    if (m.way != Move::Way::out) continue;
    Pool& pool = pool_of(m.what);
    memory_.download(pool.at(m.to), record(m.what, m.from), pool.record_bytes);
    pool.sums[static_cast<size_t>(m.to)] = checksum(pool.at(m.to), pool.record_bytes);
    if (GODWIT_FAULT("host.damage")) pool.at(m.to)[pool.record_bytes / 2] ^= std::byte{1};
  }
  for (const Move& m : moves) {
    if (m.way != Move::Way::in) continue;
    Pool& pool = pool_of(m.what);
    if (checksum(pool.at(m.from), pool.record_bytes) != pool.sums[static_cast<size_t>(m.from)]) {
      damaged.push_back(m.slot);
      continue;
    }
    std::byte* to = record(m.what, m.to);
    memory_.upload(to, pool.at(m.from), pool.record_bytes);
    // A mutant of the gate restored = kept (design §2).
    if (m.what != Move::What::page && GODWIT_FAULT("mutant.host")) memory_.zero(to, 64);
  }
}

}  // namespace godwit::model
