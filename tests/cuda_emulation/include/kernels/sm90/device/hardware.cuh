// Stands in for the header of this name in src/kernels/sm90/device: Hopper's instructions on the host.
#pragma once

#include <cstdint>

namespace godwit::sm90 {

// Every thread must have waited when its block ends, and what it copies before must not be written by
// launches that may still run then (runtime.cpp looks).
void wait_for_previous();
void let_next_start();

inline float fast_reciprocal(float x) {
  return 1 / x;
}
inline float larger(float x, float y) {
  return std::isnan(x) || std::isnan(y) ? NAN : std::fmax(x, y);
}
inline float smaller(float x, float y) {
  return std::isnan(x) || std::isnan(y) ? NAN : std::fmin(x, y);
}
inline float fast_exp2(float x) {
  return std::exp2(x);
}
inline float fast_rsqrt(float x) {
  return 1 / std::sqrt(x);
}

template <class T>
T* dynamic_shared() {
  return static_cast<T*>(emulation::shared_memory());
}

template <int kId, int kThreads>
void named_barrier() {
  emulation::wait_for_threads(kId, kThreads);
}

inline void prefetch(const void*) {}

// Blocks of a cluster.
void arrive_at_cluster();
void wait_for_cluster();

// Copies arrive as late as they may: when they are waited for.
void copy_async(void* to, const void* from, bool present);
inline void copy_async(void* to, const void* from) {
  copy_async(to, from, true);
}
void copy_half_async(void* to, const void* from, bool present);
void copy_word_async(void* to, const void* from);
void commit_copies();
void wait_copies_but(int pending);
template <int kPending>
void wait_copies() {
  wait_copies_but(kPending);
}
constexpr int kMostPending = 14;
inline void wait_copies(int pending) {
  wait_copies_but(pending < kMostPending ? pending : kMostPending);
}

uint32_t widen_low(uint32_t codes);
inline uint32_t widen_high(uint32_t codes) {
  return widen_low(codes >> 16);
}

void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void mma_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void load_tiles(uint32_t (&r)[4], const void* row);
void load_tiles_transposed(uint32_t (&r)[4], const void* row);

}  // namespace godwit::sm90
