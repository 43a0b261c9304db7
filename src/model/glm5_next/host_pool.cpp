#include "model/glm5_next/host_pool.h"

#include "base/fault.h"
#include "base/hash.h"

namespace godwit::model {

using cache::Move;

HostPool::HostPool(kernels::Memory& memory, const StateLayout& layout, int64_t pages, int64_t snapshots)
    : memory_(memory),
      page_bytes_(layout.page_bytes),
      snapshot_bytes_(layout.committed_bytes),
      pages_(static_cast<size_t>(pages * layout.page_bytes)),
      snapshots_(static_cast<size_t>(snapshots * layout.committed_bytes)),
      page_sums_(static_cast<size_t>(pages)),
      snapshot_sums_(static_cast<size_t>(snapshots)) {}

std::byte* HostPool::host(const Move& move, int64_t index) const {
  return move.what == Move::What::page ? pages_.as<std::byte>() + index * page_bytes_
                                       : snapshots_.as<std::byte>() + index * snapshot_bytes_;
}

void HostPool::run(const std::vector<Move>& moves, RankState& state, std::vector<int32_t>& damaged) {
  for (const Move& m : moves) {
    if (m.way != Move::Way::out) continue;
    const bool page = m.what == Move::What::page;
    const int64_t bytes = page ? page_bytes_ : snapshot_bytes_;
    std::byte* to = host(m, m.to);
    memory_.download(to, page ? state.page(m.from) : state.snapshot(m.from), bytes);
    (page ? page_sums_ : snapshot_sums_)[static_cast<size_t>(m.to)] = checksum(to, bytes);
    if (GODWIT_FAULT("host.damage")) to[bytes / 2] ^= std::byte{1};
  }
  for (const Move& m : moves) {
    if (m.way != Move::Way::in) continue;
    const bool page = m.what == Move::What::page;
    const int64_t bytes = page ? page_bytes_ : snapshot_bytes_;
    const std::byte* from = host(m, m.from);
    if (checksum(from, bytes) != (page ? page_sums_ : snapshot_sums_)[static_cast<size_t>(m.from)]) {
      damaged.push_back(m.slot);
      continue;
    }
    memory_.upload(page ? state.page(m.to) : state.slot(m.to), from, bytes);
  }
}

}  // namespace godwit::model
