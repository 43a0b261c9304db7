// The `attribute=` of filters: "function.name", "0.id".
#pragma once

#include "chat/jinja/runtime.h"

namespace godwit::chat::jinja {

// Follows a dotted path (or an integer index) from v by items first, then attributes. A missing last member
// is undefined; a member of an undefined value fails, as in Jinja.
Value follow_path(Runtime& runtime, const Value& v, const Value& path);

}  // namespace godwit::chat::jinja
