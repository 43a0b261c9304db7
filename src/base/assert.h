// GODWIT_ASSERT: for our own bugs only, never for input. Stays on in release: a wrong state must not compute
// on.
#pragma once

namespace godwit {
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);
}

#define GODWIT_ASSERT(expression) \
  ((expression) ? static_cast<void>(0) : ::godwit::assertion_failed(#expression, __FILE__, __LINE__))
