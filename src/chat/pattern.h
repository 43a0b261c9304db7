// Regular expressions out of client schemas: searched with hard limits, so that no pattern can hold a thread.
#pragma once

#include <string_view>

namespace godwit::chat {

// Whether `pattern` (ECMA flavour as far as PCRE2 shares it) is found in `text`. A pattern that does not
// compile or needs more than the match limit counts as not found.
bool pattern_matches(std::string_view pattern, std::string_view text);

}  // namespace godwit::chat
