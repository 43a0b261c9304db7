// Attributes, items, slices, iteration and length.
#pragma once

#include <string_view>

#include "chat/jinja/runtime.h"

namespace godwit::chat::jinja {

// object.name: a method or attribute, else the item (Jinja's getattr order). Missing: undefined. On
// undefined: fails.
Value get_attribute(Runtime& runtime, const Value& object, std::string_view name);
// object[key]: the item, else the attribute of that name. Missing or not subscriptable: undefined.
Value get_item(Runtime& runtime, const Value& object, const Value& key);
// object[start:stop:step] with Python's clipping; a bound that is none counts as left out.
Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                const Value& step);

// len(v); 0 for undefined, fails for numbers, none and generators.
size_t length_of(Runtime& runtime, const Value& v);
// What a `for` walks over, as a sequence: characters of a text, keys of a dict, nothing for undefined. For
// lists it is the list itself, so an append in the loop body is seen. Consumed generators are left at their
// end by the reader moving `next`.
Sequence& iterate(Runtime& runtime, const Value& v);
// The items of v in a fresh list; a generator is consumed.
Sequence& collect(Runtime& runtime, const Value& v);

// The built-in method of a value of this kind, or nullptr.
MethodBody find_method(Kind kind, std::string_view name);
MethodBody find_text_method(std::string_view name);

}  // namespace godwit::chat::jinja
