// What only the hardware can do: Hopper's instructions, in PTX. tests/cuda_emulation has a header of the same
// name that does it on the host, so there is no asm anywhere else.
#pragma once

#include <cstdint>

namespace godwit::sm90 {

// Programmatic dependent launch: the kernel before is complete and its writes are seen. Every kernel that is
// launched by launch_dependent() calls this before it reads or writes what another kernel touches.
__device__ inline void wait_for_previous() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
// The next kernel may start and do what it can before its own wait.
__device__ inline void let_next_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// 1 / x and 2^x to two units in the last place, a few instructions each; subnormal numbers count as zero.
__device__ inline float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float fast_rsqrt(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The larger and the smaller of two values, no number where either is none.
__device__ inline float larger(float x, float y) {
  float z;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}
__device__ inline float smaller(float x, float y) {
  float z;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}

// The block's dynamic shared memory.
template <class T>
__device__ inline T* dynamic_shared() {
  extern __shared__ __align__(128) uint8_t memory[];
  return reinterpret_cast<T*>(memory);
}

// Of kThreads threads of the block, whole warps; kId is 1 … 15.
template <int kId, int kThreads>
__device__ inline void named_barrier() {
  asm volatile("bar.sync %0, %1;" ::"n"(kId), "n"(kThreads) : "memory");
}

// Brings a line into L2.
__device__ inline void prefetch(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
}

// Blocks of a cluster (launch_clusters). Each thread arrives, then waits until all threads of all blocks have
// arrived. Only this is ordered: what a block has read before it arrived is not changed by what others write
// after they have waited.
__device__ inline void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ inline void wait_for_cluster() {
  asm volatile("barrier.cluster.wait;" ::: "memory");
}

// 16 bytes, past L1; zeros when `present` is false, and then nothing is read.
__device__ inline void copy_async(void* to, const void* from, bool present) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(present ? 16 : 0)
               : "memory");
}
__device__ inline void copy_async(void* to, const void* from) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}
// 8 bytes, otherwise as the first.
__device__ inline void copy_half_async(void* to, const void* from, bool present) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(at), "l"(from), "r"(present ? 8 : 0)
               : "memory");
}
// 4 bytes.
__device__ inline void copy_word_async(void* to, const void* from) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from) : "memory");
}
__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
// The same of a count that is alike in a warp, at most 14.
constexpr int kMostPending = 14;
__device__ inline void wait_copies(int pending) {
  switch (pending) {
    case 0:
      return wait_copies<0>();
    case 1:
      return wait_copies<1>();
    case 2:
      return wait_copies<2>();
    case 3:
      return wait_copies<3>();
    case 4:
      return wait_copies<4>();
    case 5:
      return wait_copies<5>();
    case 6:
      return wait_copies<6>();
    case 7:
      return wait_copies<7>();
    case 8:
      return wait_copies<8>();
    case 9:
      return wait_copies<9>();
    case 10:
      return wait_copies<10>();
    case 11:
      return wait_copies<11>();
    case 12:
      return wait_copies<12>();
    case 13:
      return wait_copies<13>();
    default:
      return wait_copies<kMostPending>();
  }
}

// Two e4m3 codes, the low or the high half of a word, as two f16; exact.
__device__ inline uint32_t widen_low(uint32_t codes) {
  uint32_t r;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.rn.f16x2.e4m3x2 %0, low;\n}"
      : "=r"(r)
      : "r"(codes));
  return r;
}
__device__ inline uint32_t widen_high(uint32_t codes) {
  uint32_t r;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.rn.f16x2.e4m3x2 %0, high;\n}"
      : "=r"(r)
      : "r"(codes));
  return r;
}

// c += a b with a [16, 16], b [16, 8], f32 sums; the layouts are those of mma.m16n8k16.
__device__ inline void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same with a [16, 8], b [8, 8] of TF32: the lowest 13 bits of their values do not count. The layouts are
// those of mma.m16n8k8.
__device__ inline void mma_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 x 8 tiles of 16-bit values; lane i names row i % 8 of tile i / 8.
__device__ inline void load_tiles(uint32_t (&r)[4], const void* row) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}
__device__ inline void load_tiles_transposed(uint32_t (&r)[4], const void* row) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

}  // namespace godwit::sm90
