// What one template may cost. A template comes from a model directory and its input from a client: neither is
// trusted.
#pragma once

#include <cstddef>

namespace godwit::chat::jinja {

struct Limits {
  size_t source_bytes = 1 << 20;   // of the template file
  size_t parse_depth = 200;        // nesting of statements and expressions, length of an operator chain
  size_t depth = 800;              // nesting of evaluations, macro calls included; about 0.5 KB of stack each
  size_t steps = 30'000'000;       // evaluated expressions and statements; long text counts one per 64 bytes
  size_t output_bytes = 64 << 20;  // of the render, and of one macro result
  size_t heap_bytes = 512u << 20;  // of everything the render builds: text, lists, scopes
  size_t range_items = 100'000;    // of one range(), as Jinja's sandbox has it
};

}  // namespace godwit::chat::jinja
