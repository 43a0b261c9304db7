// HostPool: the host tier's bytes (design §9): copies of pages and of the committed part of slots, each with
// a checksum that is taken when it leaves the device and checked when it comes back.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/move.h"
#include "model/glm5_next/state.h"

namespace godwit::model {

class HostPool {
 public:
  HostPool(kernels::Memory& memory, const StateLayout& layout, int64_t pages, int64_t snapshots);

  // Runs the moves of a step: all out, then all in. Slots whose copy came back damaged are appended to
  // `damaged`; what they hold then must not be used.
  void run(const std::vector<cache::Move>& moves, RankState& state, std::vector<int32_t>& damaged);
  int64_t bytes() const { return static_cast<int64_t>(pages_.bytes() + snapshots_.bytes()); }

 private:
  std::byte* host(const cache::Move& move, int64_t index) const;

  kernels::Memory& memory_;
  int64_t page_bytes_;
  int64_t snapshot_bytes_;
  Buffer pages_;      // [pages, page_bytes]
  Buffer snapshots_;  // [snapshots, snapshot_bytes]
  std::vector<uint64_t> page_sums_, snapshot_sums_;
};

}  // namespace godwit::model
