// The template's `loop` variable.
#pragma once

#include <string_view>

#include "chat/jinja/runtime.h"

namespace godwit::chat::jinja {

// loop.index, .last, .previtem …; loop.cycle and loop.changed are methods. Undefined for an unknown name.
Value loop_attribute(Runtime& runtime, Loop& loop, std::string_view name);
size_t loop_length(Loop& loop);  // runs a filter to its end

}  // namespace godwit::chat::jinja
