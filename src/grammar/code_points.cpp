#include "grammar/code_points.h"

#include <algorithm>

namespace godwit::grammar {

CodePointSet::CodePointSet(std::initializer_list<std::pair<uint32_t, uint32_t>> ranges) : ranges_(ranges) {
  normalise();
}

void CodePointSet::add(uint32_t lo, uint32_t hi) {
  ranges_.emplace_back(lo, hi);
  normalise();
}

void CodePointSet::add(const CodePointSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  normalise();
}

CodePointSet CodePointSet::complement() const {
  CodePointSet out;
  uint32_t next = 0;
  for (const auto& [lo, hi] : ranges_) {
    if (next < lo) out.ranges_.emplace_back(next, lo - 1);
    next = hi + 1;
  }
  if (next <= kMax) out.ranges_.emplace_back(next, kMax);
  out.normalise();
  return out;
}

bool CodePointSet::contains(uint32_t c) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [c](const auto& range) { return range.first <= c && c <= range.second; });
}

void CodePointSet::normalise() {
  std::sort(ranges_.begin(), ranges_.end());
  std::vector<std::pair<uint32_t, uint32_t>> out;
  auto append = [&out](uint32_t lo, uint32_t hi) {
    if (lo > hi) return;
    if (!out.empty() && lo <= out.back().second + 1) {
      out.back().second = std::max(out.back().second, hi);
    } else {
      out.emplace_back(lo, hi);
    }
  };
  for (const auto& [lo, hi] : ranges_) {  // around the surrogates
    append(lo, std::min(hi, 0xD7FFu));
    append(std::max(lo, 0xE000u), hi);
  }
  ranges_ = std::move(out);
}

}  // namespace godwit::grammar
