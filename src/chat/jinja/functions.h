// The global functions: Jinja's range, namespace and dict, transformers' raise_exception and strftime_now.
#pragma once

#include <string_view>

#include "chat/jinja/runtime.h"

namespace godwit::chat::jinja {

// The function of that name as a value, undefined when there is none.
Value global_function(std::string_view name);

}  // namespace godwit::chat::jinja
