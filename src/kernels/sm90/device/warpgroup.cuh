// Hopper's warpgroup products and what feeds them, in PTX; like hardware.cuh it has a twin in
// tests/cuda_emulation. No other architecture has these products: there the kernels that use them are
// compiled, and never launched (Device).
#pragma once

#include <cstdint>

#include "kernels/sm90/device/tensor_map.h"

namespace godwit::sm90 {

// Barriers of asynchronous copies, in shared memory (PTX ISA, mbarrier). `count` arrivals end a phase; a wait
// for a parity returns once the phase of that parity has ended.
__device__ inline void mbarrier_init(uint64_t* barrier, uint32_t count) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(barrier));
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
__device__ inline void mbarrier_arrive(uint64_t* barrier) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(barrier));
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
// Other blocks of the cluster and asynchronous copies find the barriers that this thread has made.
__device__ inline void mbarrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// On the barrier that lies at the same place in a block of the cluster.
__device__ inline void mbarrier_arrive_at(uint64_t* barrier, uint32_t block) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(barrier));
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\nmbarrier.arrive.shared::cluster.b64 "
      "_, "
      "[remote];\n}" ::"r"(at),
      "r"(block)
      : "memory");
}
// The phase ends when so many bytes have been copied, too.
__device__ inline void mbarrier_arrive_expecting(uint64_t* barrier, uint32_t bytes) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(barrier));
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
// Arrives once all copies that this thread has begun are there.
__device__ inline void mbarrier_arrive_copies(uint64_t* barrier) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(barrier));
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at) : "memory");
}
__device__ inline void mbarrier_wait(uint64_t* barrier, uint32_t parity) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(barrier));
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra "
      "again;\n}" ::"r"(at),
      "r"(parity)
      : "memory");
}
__device__ inline uint32_t block_of_cluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// Of all threads of all its blocks.
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The map of another matrix of the same size, at `base`. Who copies by it acquires it first.
__device__ inline void put_tensor_map(TensorMap* to, const TensorMap& model, const void* base) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#pragma unroll
  for (int i = 0; i < 8; ++i) reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(&model)[i];
  asm volatile(
      "tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;" ::"l"(__cvta_generic_to_global(to)),
      "l"(base)
      : "memory");
  asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
#endif
}
__device__ inline void acquire_tensor_map(const TensorMap* map) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
#endif
}
// One box, from a byte of a row on, as operands of products want it (below); `barrier` is told of its bytes.
__device__ inline void copy_box(void* to, const TensorMap* map, int32_t column, int32_t row,
                                uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(map), "r"(column), "r"(row), "r"(static_cast<uint32_t>(__cvta_generic_to_shared(barrier)))
      : "memory");
}
// To the same place in each block of the cluster that has its bit in `blocks`, and to their barriers.
__device__ inline void copy_box_to(uint32_t blocks, void* to, const TensorMap* map, int32_t column,
                                   int32_t row, uint64_t* barrier) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%2, %3}], [%4], %5;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(map), "r"(column), "r"(row), "r"(static_cast<uint32_t>(__cvta_generic_to_shared(barrier))),
      "h"(static_cast<uint16_t>(blocks))
      : "memory");
#endif
}
// Both sides and `bytes` are multiples of 16.
__device__ inline void copy_bulk(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(from), "r"(bytes), "r"(static_cast<uint32_t>(__cvta_generic_to_shared(barrier)))
      : "memory");
}

// The other way, from what ordinary stores wrote before fence_products(). A thread's copies make groups.
__device__ inline void copy_bulk_out(void* to, const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(static_cast<uint32_t>(__cvta_generic_to_shared(from))), "r"(bytes)
               : "memory");
}
__device__ inline void commit_bulk_out() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// All but the last kPending groups have read what they copy.
template <int kPending>
__device__ inline void wait_bulk_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
// All are done.
__device__ inline void wait_bulk_out() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
// To the same place in a block of the cluster, whose barrier is told of the four bytes (PTX ISA, st.async).
// Before the first one the cluster must have met after mbarrier_init_done(), and a block must not end before
// its own phases have.
__device__ inline void store_async_at(float* to, uint32_t block, float value, uint64_t* barrier) {
  asm volatile(
      "{\n.reg .b32 to, told;\nmapa.shared::cluster.u32 to, %0, %1;\nmapa.shared::cluster.u32 told, %2, "
      "%1;\nst.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [to], %3, [told];\n}" ::"r"(
          static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "r"(block), "r"(static_cast<uint32_t>(__cvta_generic_to_shared(barrier))), "r"(__float_as_uint(value))
      : "memory");
}

// Products of a warpgroup, of operands in shared memory: rows of 128 bytes whose 16-byte pieces p of row r
// lie at p ^ (r % 8); tiles begin at multiples of 1,024 bytes. A step of 32 bytes along the rows adds 2 to an
// operand.
template <class T>
__device__ inline T* align_tiles(void* shared) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  return reinterpret_cast<T*>(static_cast<uint8_t*>(shared) + (1024 - at % 1024) % 1024);
}
__device__ inline uint64_t wgmma_operand(const void* tile) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(tile));
  return (uint64_t{at & 0x3ffffu} >> 4) | uint64_t{1} << 16 | uint64_t{64} << 32 | uint64_t{1} << 62;
}
// The operand so many bytes (a multiple of 16) further on.
__device__ inline uint64_t wgmma_moved(uint64_t operand, uint32_t bytes) {
  return (operand & 0xffffffff00000000u) | (static_cast<uint32_t>(operand) + bytes / 16);
}
// What ordinary copies wrote is seen by the products that follow.
__device__ inline void fence_products() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void wgmma_begin() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ inline void wgmma_commit() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
__device__ inline void wgmma_wait() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}
// The compiler does not know that products still run: what reads or writes their registers must stay on its
// side of begin and wait.
template <int kValues>
__device__ inline void wgmma_settle(float (&d)[kValues]) {
#pragma unroll
  for (int i = 0; i < kValues; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
// d[64 x 128] (+)= a[64 x 32] b[128 x 32]^T, e4m3; `add` false: d is overwritten. Lane (row, quad) of warp w
// has in d[4 j + i] row 16 w + row + 8 (i / 2), column 8 j + 2 quad + i % 2.
__device__ inline void wgmma_e4m3(float (&d)[64], uint64_t a, uint64_t b, bool add) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\nwgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {%0, "
      "%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
      "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, "
      "%43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, "
      "%63}, %64, %65, p, 1, 1;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
        "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),
        "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),
        "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]),
        "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]),
        "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
#endif
}
// The same of bf16 and narrow sides: d[64 x 2 kValues] (+)= a[64 x 16] b[2 kValues x 16]^T.
__device__ inline void wgmma_bf16(float (&d)[4], uint64_t a, uint64_t b, bool add) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\nwgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, "
      "%2, %3}, %4, %5, p, 1, 1, 0, 0;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
#endif
}
__device__ inline void wgmma_bf16(float (&d)[16], uint64_t a, uint64_t b, bool add) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\nwgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, "
      "%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p, 1, 1, 0, 0;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
#endif
}
// Registers of a thread, moved from warpgroups that need few to those that need many.
template <int kCount>
__device__ inline void fewer_registers() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
#endif
}
template <int kCount>
__device__ inline void more_registers() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
#endif
}

}  // namespace godwit::sm90
