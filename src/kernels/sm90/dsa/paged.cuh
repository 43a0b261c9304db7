// Addresses in the paged caches and the ring of one DSA layer (kernels/ops/dsa.h).
#pragma once

#include "kernels/ops/dsa.h"
#include "kernels/sm90/device/common.cuh"

namespace godwit::sm90 {

using kernels::kPageTokens;

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
  // [64, width] latents of a position's page, and where the position's own begins.
  __device__ void* latents(int64_t position) const { return page(position) + cache.latent_offset; }
  __device__ static int64_t latent_at(int64_t position, int64_t width) {
    return position % kPageTokens * width;
  }
  // Likewise for pool p: [64 / P, width].
  __device__ void* pooled(int64_t p, int64_t pool) const { return page(p * pool) + cache.pooled_offset; }
  __device__ static int64_t pooled_at(int64_t p, int64_t pool, int64_t width) {
    return p * pool % kPageTokens / pool * width;
  }
  // [2, width]: key, gate.
  __device__ float* ring(int64_t position, int64_t width) const {
    return reinterpret_cast<float*>(cache.ring + int64_t{slot} * cache.ring_stride) +
           position % cache.ring_length * 2 * width;
  }
};

}  // namespace godwit::sm90
