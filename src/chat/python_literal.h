// Models trained on Python write {'a': True} where JSON is asked for.
#pragma once

#include <optional>
#include <string_view>

#include "base/json.h"

namespace godwit::chat {

// The dict or list that `text` is as a Python literal (quotes of both kinds, True, False, None, trailing
// commas); nothing when it is none. Tuples, sets, prefixes and arithmetic are not read.
std::optional<Json> parse_python_literal(std::string_view text);

}  // namespace godwit::chat
