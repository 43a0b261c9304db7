// String operations shared by filters and methods. All work on code points and keep the origin of what they
// keep.
#pragma once

#include <string_view>

#include "chat/jinja/runtime.h"

namespace godwit::chat::jinja {

enum class Side : uint8_t { both, left, right };
// str.strip / lstrip / rstrip; `characters` null: white space.
Text strip(Runtime& runtime, const Text& text, Side side, const Text* characters);

enum class Case : uint8_t { upper, lower, capitalize, title_words, title_filter };
// title_words is str.title (every run of letters), title_filter Jinja's filter (after blanks, hyphens and
// brackets). The result is data unless the whole text is template text.
Text change_case(Runtime& runtime, const Text& text, Case to);

// str.replace; count < 0: all.
Text replace(Runtime& runtime, const Text& text, const Text& from, const Text& to, int64_t count);
// str.split / rsplit: `separator` null: at white space. limit < 0: no limit.
Sequence& split(Runtime& runtime, const Text& text, const Text* separator, int64_t limit, bool from_right);
Sequence& split_lines(Runtime& runtime, const Text& text, bool keep_ends);
Text join(Runtime& runtime, const Text& separator, const Sequence& items, bool strict);

}  // namespace godwit::chat::jinja
