// Stands in for the header of this name in src/kernels/sm90/device: warpgroup products on the host.
#pragma once

#include <cstdint>

#include "kernels/sm90/device/tensor_map.h"

namespace godwit::sm90 {

// Copies have arrived when their barrier is told of them, the earliest of the times that hardware may take.
void mbarrier_init(uint64_t* barrier, uint32_t count);
void mbarrier_arrive(uint64_t* barrier);
void mbarrier_arrive_copies(uint64_t* barrier);
void mbarrier_init_done();
void mbarrier_arrive_at(uint64_t* barrier, uint32_t block);
void mbarrier_arrive_expecting(uint64_t* barrier, uint32_t bytes);
void mbarrier_wait(uint64_t* barrier, uint32_t parity);
// Comes as late as it may: when its barrier is waited for.
void copy_bulk(void* to, const void* from, uint32_t bytes, uint64_t* barrier);

// Is done as late as it may: when its thread waits for it.
void copy_bulk_out(void* to, const void* from, uint32_t bytes);
void commit_bulk_out();
void wait_bulk_out_but(int pending);
template <int kPending>
void wait_bulk_read() {
  wait_bulk_out_but(kPending);
}
inline void wait_bulk_out() {
  wait_bulk_out_but(0);
}
// There at once; to a block that has ended it is an error.
void store_async_at(float* to, uint32_t block, float value, uint64_t* barrier);

uint32_t block_of_cluster();
void cluster_sync();
void put_tensor_map(TensorMap* to, const TensorMap& model, const void* base);
inline void acquire_tensor_map(const TensorMap*) {}
void copy_box_to(uint32_t blocks, void* to, const TensorMap* map, int32_t column, int32_t row,
                 uint64_t* barrier);
inline void copy_box(void* to, const TensorMap* map, int32_t column, int32_t row, uint64_t* barrier) {
  copy_box_to(1u << block_of_cluster(), to, map, column, row, barrier);
}

template <class T>
T* align_tiles(void* shared) {
  return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(shared) + 1023) / 1024 * 1024);
}
// Operands are addresses in units of 16 bytes.
inline uint64_t wgmma_operand(const void* tile) {
  return reinterpret_cast<uintptr_t>(tile) / 16;
}
inline uint64_t wgmma_moved(uint64_t operand, uint32_t bytes) {
  return operand + bytes / 16;
}
inline void fence_products() {}
inline void wgmma_begin() {}
// Products are made as late as they may be: when they are waited for. Until then what they write is no
// number.
inline void wgmma_commit() {}
void wgmma_wait();
template <int kValues>
void wgmma_settle(float (&)[kValues]) {}
void wgmma_bf16(float (&d)[4], uint64_t a, uint64_t b, bool add);
void wgmma_bf16(float (&d)[16], uint64_t a, uint64_t b, bool add);
void wgmma_e4m3(float (&d)[64], uint64_t a, uint64_t b, bool add);
template <int kCount>
void fewer_registers() {}
template <int kCount>
void more_registers() {}

}  // namespace godwit::sm90
