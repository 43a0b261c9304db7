// Sets of token ids as the lengths of alternating runs: forbidden, allowed, forbidden … A grammar's masks are
// 20 KB each, and mostly a few runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace godwit::engine {

using MaskRuns = std::vector<int32_t>;

// Of the first `count` bits of a mask.
MaskRuns runs_of(std::span<const uint32_t> mask, int64_t count);
MaskRuns runs_of(const std::vector<bool>& mask);
// False when the runs are not of `count` ids in all. mask: [(count + 31) / 32].
bool mask_of(const MaskRuns& runs, int64_t count, std::span<uint32_t> mask);

}  // namespace godwit::engine
