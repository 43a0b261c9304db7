// Arithmetic, comparison and membership with Python's rules.
#pragma once

#include "chat/jinja/ast.h"
#include "chat/jinja/runtime.h"

namespace godwit::chat::jinja {

// add … concat. Integers are 64 bits wide: a result beyond them fails rather than wraps.
Value apply_binary(Runtime& runtime, Operator op, const Value& a, const Value& b);
Value apply_sign(Operator op, const Value& v);
bool compare(Runtime& runtime, Operator op, const Value& a, const Value& b);
bool contains(Runtime& runtime, const Value& container, const Value& item);

}  // namespace godwit::chat::jinja
