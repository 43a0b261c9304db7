// ByteDfa: a deterministic automaton over bytes, the leaf of every grammar (JSON strings, numbers, literals,
// patterns).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace godwit::grammar {

constexpr uint32_t kNone = UINT32_MAX;

struct ByteEdge {
  uint8_t lo = 0;  // the inclusive range of bytes
  uint8_t hi = 0;
  uint32_t target = 0;
};

// Which characters leave a state as it is. A whole subtree of tokens made of such characters is allowed
// without a walk.
struct Loop {
  uint64_t ascii[2] = {0, 0};  // bit b of word b / 64: byte b leads back
  bool multibyte = false;      // every character of two to four bytes leads back
};

class ByteDfa {
 public:
  struct State {
    std::vector<ByteEdge> edges;  // ascending and disjoint
    bool accept = false;
    Loop loop;
  };

  // Keeps the states from which an accepting one can be reached, start (0) first; nothing when the start is
  // not one of them. So every state of a ByteDfa has a way to the end.
  static std::optional<ByteDfa> make(std::vector<State> states);
  // Exactly these byte strings. Not empty.
  static ByteDfa literals(const std::vector<std::string>& texts);

  const State& at(uint32_t state) const { return states_[state]; }
  uint32_t size() const { return static_cast<uint32_t>(states_.size()); }
  uint32_t next(uint32_t state, uint8_t byte) const;  // kNone: no way on

 private:
  bool returns(uint32_t from, uint8_t lo, uint8_t hi, unsigned more, uint32_t home) const;
  Loop loop_of(uint32_t state) const;

  std::vector<State> states_;
};

// What both accept. Nothing when there is no such text; `limit` states are never exceeded (nothing, and
// `too_large` set).
std::optional<ByteDfa> intersect(const ByteDfa& a, const ByteDfa& b, size_t limit, bool& too_large);

// `base` without the given literals between the start of its body and its end. `body` is the state in which
// the literal begins. A backslash is refused as long as what was read may still become one of the literals:
// an escape could spell the rest of it.
ByteDfa without_literals(const ByteDfa& base, uint32_t body, const std::vector<std::string>& literals);

}  // namespace godwit::grammar
