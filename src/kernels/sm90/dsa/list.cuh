// What a row attends to, in order: tokens of the chosen pools, then those of the pool that is not complete.
#pragma once

#include <cstdint>

namespace godwit::sm90 {

struct List {
  const int32_t* pools;
  int listed, tokens;
  int32_t tail;  // position of the first after whole pools
  int shift;     // log2 P

  // Of a row that sees `end` tokens.
  __device__ List(const int32_t* chosen, int32_t count, int pool_shift, int32_t end)
      : pools(chosen), shift(pool_shift) {
    tail = end >> shift << shift;
    listed = count << shift;
    tokens = listed + (end - tail);
  }
  // Of entry j, in two steps; 0 past the end.
  __device__ int32_t pool(int j) const { return j < listed ? pools[j >> shift] : 0; }
  __device__ int32_t position(int j, int32_t pool) const {
    if (j < listed) return (pool << shift) + (j & ((1 << shift) - 1));
    return j < tokens ? tail + (j - listed) : 0;
  }
};

}  // namespace godwit::sm90
