// Hopper's own instructions, as the prefill experiments X12 and X15 use them: barriers of asynchronous
// copies, bulk copies, and what stands around warpgroup products.
#pragma once

#include "common.cuh"

__device__ inline void barrier_init(uint64_t* barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count));
}
__device__ inline void barrier_expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
__device__ inline void barrier_wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra "
      "again;\n}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
__device__ inline void copy_bytes(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// Shared-memory descriptors of a tile with rows of 128 bytes and the 128-byte swizzle; `next` is the distance
// in bytes to the next 64 columns where the columns are d's (rows are k), unused otherwise.
__device__ inline uint64_t descriptor(const void* tile, uint32_t next = 16) {
  return (uint64_t{shared_address(tile) & 0x3ffffu} >> 4) | uint64_t{next >> 4} << 16 | uint64_t{64} << 32 |
         uint64_t{1} << 62;
}
// The compiler does not know that products still run: what reads or writes their registers must stay on its
// side of products_begin and of the wait.
template <int kValues>
__device__ inline void settle(float (&d)[kValues]) {
#pragma unroll
  for (int i = 0; i < kValues; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
__device__ inline void products_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ inline void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
