#include "engine/mask_runs.h"

#include <algorithm>

namespace godwit::engine {
namespace {

template <class Allowed>
MaskRuns runs(int64_t count, Allowed&& allowed) {
  MaskRuns out;
  bool now = false;
  int64_t from = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (allowed(i) == now) continue;
    out.push_back(static_cast<int32_t>(i - from));
    from = i;
    now = !now;
  }
  out.push_back(static_cast<int32_t>(count - from));
  return out;
}

}  // namespace

MaskRuns runs_of(std::span<const uint32_t> mask, int64_t count) {
  return runs(count, [&](int64_t i) { return (mask[static_cast<size_t>(i / 32)] >> (i % 32) & 1) != 0; });
}

MaskRuns runs_of(const std::vector<bool>& mask) {
  return runs(static_cast<int64_t>(mask.size()), [&](int64_t i) { return mask[static_cast<size_t>(i)]; });
}

bool mask_of(const MaskRuns& runs, int64_t count, std::span<uint32_t> mask) {
  std::fill(mask.begin(), mask.end(), 0u);
  int64_t at = 0;
  bool allowed = false;
  for (const int32_t run : runs) {
    if (run < 0 || run > count - at) return false;
    if (allowed)
      for (int64_t i = at; i < at + run; ++i) mask[static_cast<size_t>(i / 32)] |= 1u << (i % 32);
    at += run;
    allowed = !allowed;
  }
  return at == count;
}

}  // namespace godwit::engine
