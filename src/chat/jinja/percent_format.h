// The formatting of `'%s' % x`, the format filter and str.format.
#pragma once

#include "chat/jinja/runtime.h"

namespace godwit::chat::jinja {

// Python's printf-style formatting: %s %r %d %i %u %f %x %% with flags '-', '0', ' ', '+', width and
// precision; one value, or a tuple of them. Literal parts and strings keep their origin.
Text percent_format(Runtime& runtime, const Text& format, const Value& values);
// str.format with fields {} {0} {name} and without conversions or format specifications, which fail.
Text brace_format(Runtime& runtime, const Text& format, const Arguments& arguments);

}  // namespace godwit::chat::jinja
