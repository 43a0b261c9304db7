// Escapes inside a quoted string of a template.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace godwit::chat::jinja {

// Python's "unicode-escape" decoding of what stands between the quotes: \n \t \\ \xHH \uXXXX \UXXXXXXXX \ooo
// …; an unknown escape keeps its backslash. Throws Failure for a truncated \x, \u or \U and for \N{name}.
std::string decode_string_literal(std::string_view body, uint32_t line);

}  // namespace godwit::chat::jinja
