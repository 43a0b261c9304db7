// Addresses in the paged caches and the ring of one DSA layer (kernels/ops/dsa.h), and what stored rows say.
#pragma once

#include "kernels/ops/dsa.h"
#include "kernels/sm90/device/common.cuh"

namespace godwit::sm90 {

using kernels::kPageTokens;
using kernels::StepView;

// A latent or a pooled key as it is stored (kernels/cache_format.h).
struct StoredValues {
  const std::byte* values;
  const float* scales;  // fp8: of groups of 128

  template <class T>
  __device__ float at(int64_t i) const {
    return load(reinterpret_cast<const T*>(values) + i);
  }
};
template <>
__device__ inline float StoredValues::at<f8_e4m3>(int64_t i) const {
  return load(reinterpret_cast<const f8_e4m3*>(values) + i) * scales[i / kFp8Block];
}

// The pages and the ring of one sequence.
struct Cached {
  kernels::DsaCache cache;
  const int32_t* pages;  // the sequence's page table
  int32_t slot;

  __device__ Cached(const kernels::StepView& step, const kernels::DsaCache& c, const kernels::Sequence& s)
      : cache(c), pages(step.pages + s.page_offset), slot(s.slot) {}
  __device__ std::byte* page(int64_t position) const {
    return cache.base + int64_t{pages[position / kPageTokens]} * cache.page_stride;
  }
  __device__ std::byte* latent(int64_t position, int64_t width) const {
    return page(position) + cache.latent_offset +
           position % kPageTokens * kernels::row_bytes(cache.latent_dtype, width);
  }
  // Of pool p among those of its page: P divides a page, so both are powers of two.
  __device__ static int64_t in_page(int64_t p, int32_t pool) {
    return p & ((kPageTokens >> (__ffs(pool) - 1)) - 1);
  }
  __device__ std::byte* key(int64_t p, int32_t pool, int64_t width) const {
    return page(p * pool) + cache.pooled_offset +
           in_page(p, pool) * kernels::row_value_bytes(cache.pooled_dtype, width);
  }
  // fp8 only: of the groups of a key; those of a page's keys follow one another.
  __device__ float* key_scales(int64_t p, int32_t pool, int64_t width) const {
    std::byte* scales =
        page(p * pool) + cache.pooled_offset +
        (kPageTokens >> (__ffs(pool) - 1)) * kernels::row_value_bytes(cache.pooled_dtype, width);
    return reinterpret_cast<float*>(scales) + in_page(p, pool) * kernels::fp8_groups(width);
  }
  __device__ StoredValues stored_latent(int64_t position, int64_t width) const {
    const std::byte* row = latent(position, width);
    return {row, reinterpret_cast<const float*>(row + kernels::padded_codes(width))};
  }
  __device__ StoredValues stored_key(int64_t p, int32_t pool, int64_t width) const {
    return {key(p, pool, width), key_scales(p, pool, width)};
  }
  // [2, width]: key, gate.
  __device__ float* ring(int64_t position, int64_t width) const {
    return reinterpret_cast<float*>(cache.ring + int64_t{slot} * cache.ring_stride) +
           static_cast<uint32_t>(position) % static_cast<uint32_t>(cache.ring_length) * 2 * width;
  }
};

}  // namespace godwit::sm90
