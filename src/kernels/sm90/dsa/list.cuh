// What both forms of attention ask for, and what a row attends to.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/sm90/device/common.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {

struct Attention {
  Rows<const float> query;  // [T, heads L]
  kernels::DsaCache cache;
  Rows<const int32_t> pools, count;
  int32_t pool_shift;  // log2 P, which divides a page
  int32_t heads, head_groups;
  float scale;
  Rows<float> out;  // [T, heads L]
};
// A block has `heads_of_block` heads.
inline Attention attention_of(const kernels::MlaAttend& a, int32_t heads_of_block) {
  const auto heads = static_cast<int32_t>(a.heads);
  return {rows_of<const float>(a.query),
          a.cache,
          rows_of<const int32_t>(a.pools),
          rows_of<const int32_t>(a.count),
          std::countr_zero(static_cast<uint32_t>(a.pool)),
          heads,
          (heads + heads_of_block - 1) / heads_of_block,
          a.scale,
          rows_of<float>(a.out)};
}

// In order: tokens of the chosen pools, then those of the pool that is not complete.

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
