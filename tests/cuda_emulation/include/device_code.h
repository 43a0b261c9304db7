// Included before every kernel source: CUDA's language on the host. A kernel's threads are fibers; those of a
// block take turns, and what a warp or a block does together waits until all of them have come.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "cuda_fp8.h"
#include "cuda_runtime_api.h"

#define __device__
#define __host__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static  // blocks run one after the other; those of a cluster use dynamic memory only

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

// Of the thread that has its turn.
struct uint3 {
  unsigned x, y, z;
};
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace godwit::emulation {

constexpr unsigned kAllLanes = 0xffffffffu;
void wait_for_lanes(unsigned mask);                  // __syncwarp
void wait_for_threads(int barrier, unsigned count);  // bar.sync; count 0: the whole block
int count_threads(bool predicate);                   // __syncthreads_count
void* shared_memory();                               // the dynamic kind, poisoned before each block

// What each lane of the warp gives, until this lane's next exchange; all lanes of `mask` must call.
struct Gift {
  unsigned char bytes[24];
};
const Gift* exchange(unsigned mask, const Gift& own);

template <class T>
T taken(const Gift& gift) {
  T value;
  std::memcpy(&value, gift.bytes, sizeof(T));
  return value;
}
template <class T>
Gift given(const T& value) {
  static_assert(sizeof(T) <= sizeof(Gift));
  Gift gift;
  std::memcpy(gift.bytes, &value, sizeof(T));
  return gift;
}

inline int lane() {
  return static_cast<int>(threadIdx.x % 32);
}

}  // namespace godwit::emulation

using std::isfinite;
using std::isnan;

template <class T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}

inline void __syncthreads() {
  godwit::emulation::wait_for_threads(0, 0);
}
inline int __syncthreads_or(int predicate) {
  return godwit::emulation::count_threads(predicate != 0) > 0;
}
inline int __syncthreads_and(int predicate) {
  return godwit::emulation::count_threads(predicate == 0) == 0;
}
inline void __syncwarp(unsigned mask = godwit::emulation::kAllLanes) {
  godwit::emulation::wait_for_lanes(mask);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int lane) {
  using namespace godwit::emulation;
  return taken<T>(exchange(mask, given(value))[lane & 31]);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  using namespace godwit::emulation;
  return taken<T>(exchange(mask, given(value))[lane() ^ lanes]);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, int lanes) {
  using namespace godwit::emulation;
  return taken<T>(exchange(mask, given(value))[lane() >= lanes ? lane() - lanes : lane()]);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  using namespace godwit::emulation;
  const Gift* all = exchange(mask, given(predicate != 0));
  unsigned ballot = 0;
  for (unsigned i = 0; i < 32; ++i)
    if ((mask >> i & 1) != 0 && taken<bool>(all[i])) ballot |= 1u << i;
  return ballot;
}
inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0;
}

inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  using namespace godwit::emulation;
  const Gift* all = exchange(mask, given(value));
  unsigned most = 0;
  for (unsigned i = 0; i < 32; ++i)
    if ((mask >> i & 1) != 0) most = std::max(most, taken<unsigned>(all[i]));
  return most;
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value) {
  return ~__reduce_max_sync(mask, ~value);
}
inline int __syncthreads_count(int predicate) {
  return godwit::emulation::count_threads(predicate != 0);
}

inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
inline int __clz(int x) {
  return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline uint32_t __float_as_uint(float x) {
  return __builtin_bit_cast(uint32_t, x);
}
inline float __uint_as_float(uint32_t x) {
  return __builtin_bit_cast(float, x);
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
inline void __threadfence() {}
inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t all = uint64_t{high} << 32 | low;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i)
    out |= static_cast<uint32_t>(all >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return out;
}

template <class T>
T atomicAdd(T* p, T value) {
  const T old = *p;
  *p = old + value;
  return old;
}
template <class T>
T atomicOr(T* p, T value) {
  const T old = *p;
  *p = old | value;
  return old;
}
