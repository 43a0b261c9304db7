// Values as text, the way Python's str() and repr() write them.
#pragma once

#include <string>

#include "chat/jinja/runtime.h"

namespace godwit::chat::jinja {

// str(v). A text keeps its origin; anything else becomes data.
Text to_text(Runtime& runtime, const Value& v);
void append_str(Runtime& runtime, std::string& out, const Value& v);
void append_repr(Runtime& runtime, std::string& out, const Value& v);

}  // namespace godwit::chat::jinja
