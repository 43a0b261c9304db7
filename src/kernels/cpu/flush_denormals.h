// Denormals to zero for the life of an object. A decaying KDA state passes through the denormal range, where
// x86 takes a hundred times longer per product; zero is within rounding. Chunk, step and replay all run under
// it, so that their bits agree.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace godwit::cpu {

class FlushDenormals {
 public:
#if defined(__x86_64__)
  FlushDenormals() : saved_(_mm_getcsr()) {
    _mm_setcsr(saved_ | kFlushToZero | kDenormalsAreZero);
  }
  ~FlushDenormals() {
    _mm_setcsr(saved_);
  }
#else
  FlushDenormals() {}
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr unsigned kFlushToZero = 0x8000;
  static constexpr unsigned kDenormalsAreZero = 0x0040;
  unsigned saved_;
#endif
};

}  // namespace godwit::cpu
