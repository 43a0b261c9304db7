// Copies between the device and the host tier, as commands of a step. A rank runs all `out` moves first, then
// `in` moves, then rows: what a copy to the host has read may be written again in the same step.
#pragma once

#include <array>
#include <cstdint>

namespace godwit::cache {

struct Move {
  enum class What : uint8_t { page, snapshot, slot };
  enum class Way : uint8_t { out, in };  // out: device to host
  What what = What::page;
  Way way = Way::out;
  int32_t from = 0;  // page, snapshot or slot index in its tier
  int32_t to = 0;    // likewise
  int32_t slot = 0;  // in: whose lease it serves, to be recomputed if the copy turns out damaged
};

// Bytes of one record of each kind, by Move::What. One unit each where only their number matters.
using RecordBytes = std::array<int64_t, 3>;

}  // namespace godwit::cache
