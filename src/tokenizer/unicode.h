// Code point classes of the pre-tokenizer (api spec §1.3 rule 2), Unicode 16.0.
#pragma once

#include <cstddef>
#include <cstdint>

namespace godwit::tokenizer {

enum class CharClass : uint8_t {
  other,   // marks, punctuation, symbols, controls, unassigned
  letter,  // category L*
  number,  // category N*
  space,   // White_Space without CR and LF
  newline  // CR, LF
};

constexpr uint32_t kCodePoints = 0x110000;

// One class a code point: [kCodePoints]. Built on first use from the runs below; never freed.
const CharClass* char_classes();

// Generated: first code point << 3 | class, ascending; a run lasts to the start of the next.
extern const uint32_t kCharClassRuns[];
extern const size_t kCharClassRunCount;

}  // namespace godwit::tokenizer
