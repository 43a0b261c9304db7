// JSON numbers within bounds, as automata.
#pragma once

#include <optional>

#include "base/json.h"
#include "grammar/byte_dfa.h"

namespace godwit::grammar {

// Digits that a generated number may have: enough for every double and 64-bit integer, and an end to digit
// loops.
constexpr unsigned kMaxIntegerDigits = 20;
constexpr unsigned kMaxFractionDigits = 20;
constexpr unsigned kMaxExponentDigits = 2;

struct NumberBound {
  Json value;  // a number
  bool exclusive = false;
};

struct NumberRange {
  bool integer = false;  // no fraction and no exponent
  std::optional<NumberBound> min;
  std::optional<NumberBound> max;
};

// Numbers of JSON's grammar in the range; with a bound also without exponents, which no finite automaton can
// compare. Nothing when the range holds none.
std::optional<ByteDfa> number_dfa(const NumberRange& range);

}  // namespace godwit::grammar
