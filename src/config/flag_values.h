// Values of flags, checked so that the message says what was given and what is allowed. What passes is
// rewritten as plain decimal: the command line's own conversion would read 010 as eight and -1 as a huge
// size.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>

namespace godwit {

CLI::Validator whole_number(int64_t low, int64_t high);

// Bytes, or a number with a unit (KiB, MiB, GiB, …, of 1,024 each): 4GiB ▶ 4294967296.
CLI::Validator byte_size();

// What a browser sends as Origin: scheme://host[:port], or null; or * for any.
CLI::Validator web_origin();

}  // namespace godwit
