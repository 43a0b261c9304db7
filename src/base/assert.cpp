#include "base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace godwit {

void assertion_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "godwit: internal error: %s does not hold (%s:%d)\n", expression, file, line);
  std::abort();
}

}  // namespace godwit
