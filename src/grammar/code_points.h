// CodePointSet: sets of Unicode scalar values (surrogates are never members).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace godwit::grammar {

class CodePointSet {
 public:
  static constexpr uint32_t kMax = 0x10FFFF;

  CodePointSet() = default;
  CodePointSet(std::initializer_list<std::pair<uint32_t, uint32_t>> ranges);
  static CodePointSet all() { return {{0, kMax}}; }

  void add(uint32_t lo, uint32_t hi);  // inclusive
  void add(const CodePointSet& other);
  CodePointSet complement() const;
  bool contains(uint32_t c) const;
  bool empty() const { return ranges_.empty(); }
  // Ascending, disjoint, not adjacent.
  const std::vector<std::pair<uint32_t, uint32_t>>& ranges() const { return ranges_; }

 private:
  void normalise();
  std::vector<std::pair<uint32_t, uint32_t>> ranges_;
};

}  // namespace godwit::grammar
