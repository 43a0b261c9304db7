#include "tokenizer/unicode.h"

#include <algorithm>
#include <vector>

namespace godwit::tokenizer {

const CharClass* char_classes() {
  // A flat megabyte rather than a two-stage table: one load a character, and text touches few of its lines.
  static const std::vector<CharClass> table = [] {
    std::vector<CharClass> classes(kCodePoints);
    for (size_t i = 0; i < kCharClassRunCount; ++i) {
      uint32_t first = kCharClassRuns[i] >> 3;
      uint32_t last = i + 1 < kCharClassRunCount ? kCharClassRuns[i + 1] >> 3 : kCodePoints;
      std::fill(classes.begin() + first, classes.begin() + last,
                static_cast<CharClass>(kCharClassRuns[i] & 7));
    }
    return classes;
  }();
  return table.data();
}

}  // namespace godwit::tokenizer
