// The built-in filters and tests by name.
#pragma once

#include <string_view>

#include "chat/jinja/runtime.h"

namespace godwit::chat::jinja {

using FilterBody = Value (*)(Runtime&, const Value& input, Arguments&);
using TestBody = bool (*)(Runtime&, const Value& input, Arguments&);

// Fail for an unknown name.
Value apply_filter(Runtime& runtime, std::string_view name, const Value& input, Arguments& arguments);
bool apply_test(Runtime& runtime, std::string_view name, const Value& input, Arguments& arguments);

// The filters of each file; nullptr for a name that is not theirs.
FilterBody find_text_filter(std::string_view name);
FilterBody find_number_filter(std::string_view name);
FilterBody find_list_filter(std::string_view name);
FilterBody find_selection_filter(std::string_view name);

}  // namespace godwit::chat::jinja
