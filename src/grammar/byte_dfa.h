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

// Characters that may follow in any number and order without the automaton failing. A whole subtree of tokens
// made of them is allowed without a walk. Characters beyond ASCII are taken together by their first byte.
struct SafeSet {
  uint64_t ascii[2] = {0, 0};  // bit b % 64 of word b / 64: byte b
  uint64_t leads = 0;          // bit b - 0xC2: every character that begins with byte b

  bool empty() const { return (ascii[0] | ascii[1] | leads) == 0; }
  bool covers(const SafeSet& other) const {
    return ((other.ascii[0] & ~ascii[0]) | (other.ascii[1] & ~ascii[1]) | (other.leads & ~leads)) == 0;
  }
  void add(uint8_t first_byte) {
    if (first_byte < 0x80) {
      ascii[first_byte / 64] |= uint64_t{1} << (first_byte % 64);
    } else if (first_byte >= 0xC2 && first_byte <= 0xF4) {
      leads |= uint64_t{1} << (first_byte - 0xC2);
    }
  }
};

class ByteDfa {
 public:
  struct State {
    std::vector<ByteEdge> edges;  // ascending and disjoint
    bool accept = false;
    SafeSet safe;
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
  void find_safe_sets();

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
