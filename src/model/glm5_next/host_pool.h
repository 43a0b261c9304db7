// HostPool: the host tier's bytes (design §9): copies of pages and of the committed part of slots, each with
// a checksum that is taken when it leaves the device and checked when it comes back.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/host_tier.h"
#include "model/glm5_next/state.h"

namespace godwit::model {

class HostPool {
 public:
  HostPool(kernels::Memory& memory, const StateLayout& layout, const cache::HostSizes& sizes);

  // Runs the moves of a step: all out, then all in. Slots whose copy came back damaged are appended to
  // `damaged`; what they hold then must not be used.
  void run(const std::vector<cache::Move>& moves, RankState& state, std::vector<int32_t>& damaged);

 private:
  // Records of one kind: pages, snapshots (the committed part of a slot), whole slots.
  struct Pool {
    int64_t record_bytes = 0;
    Buffer bytes;  // [records, record_bytes]
    std::vector<uint64_t> sums;

    void size(int64_t records, int64_t record);
    std::byte* at(int64_t i) const { return bytes.as<std::byte>() + i * record_bytes; }
  };
  Pool& pool_of(cache::Move::What what) { return pools_[static_cast<size_t>(what)]; }

  kernels::Memory& memory_;
  Pool pools_[3];  // by cache::Move::What
};

}  // namespace godwit::model
