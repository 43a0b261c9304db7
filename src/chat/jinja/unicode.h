// Code points in UTF-8 text, with Python's notions of white space and case.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace godwit::chat::jinja {

// Reads the code point at `at` (which must be < text.size()) and moves `at` behind it. A malformed byte reads
// as U+FFFD.
char32_t next_code_point(std::string_view text, size_t& at);
void append_code_point(std::string& out, char32_t c);
size_t count_code_points(std::string_view text);
// Byte offset of code point `index`, text.size() when there are fewer.
size_t offset_of(std::string_view text, size_t index);
bool is_utf8(std::string_view text);

// Python str.isspace: Unicode white space and U+001C..U+001F (api spec §2.12 (c)).
bool is_space(char32_t c);
// What repr() prints as itself. Approximates Python's table: controls, separators, format characters, private
// use and noncharacters are escaped; unassigned code points are not recognised.
bool is_printable(char32_t c);

// Case mapping covers ASCII, Latin-1, Latin Extended-A and Additional, Greek, Cyrillic, Armenian and
// full-width letters, and the few letters that expand: U+00DF to "SS" (upper) and "Ss" (title), the Latin
// ligatures, U+0149, U+0130. Other scripts map to themselves; final sigma is not special.
void append_upper(std::string& out, char32_t c);
void append_lower(std::string& out, char32_t c);
void append_title(std::string& out, char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
// ASCII and Latin-1 letters exactly; every printable code point from U+00C0 on counts as a letter.
bool is_letter(char32_t c);

}  // namespace godwit::chat::jinja
