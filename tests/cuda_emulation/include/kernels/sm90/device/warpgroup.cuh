// Stands in for the header of this name in src/kernels/sm90/device: warpgroup products on the host.
#pragma once

#include <cstdint>

namespace godwit::sm90 {

// Copies have arrived when their barrier is told of them, the earliest of the times that hardware may take.
void mbarrier_init(uint64_t* barrier, uint32_t count);
void mbarrier_arrive(uint64_t* barrier);
void mbarrier_arrive_copies(uint64_t* barrier);
void mbarrier_wait(uint64_t* barrier, uint32_t parity);

template <class T>
T* align_tiles(void* shared) {
  return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(shared) + 1023) / 1024 * 1024);
}
// Operands are addresses in units of 16 bytes.
inline uint64_t wgmma_operand(const void* tile) {
  return reinterpret_cast<uintptr_t>(tile) / 16;
}
inline void fence_products() {}
inline void wgmma_begin() {}
inline void wgmma_commit() {}
inline void wgmma_wait() {}
template <int kValues>
void wgmma_settle(float (&)[kValues]) {}
void wgmma_e4m3(float (&d)[96], uint64_t a, uint64_t b, bool add);
void wgmma_bf16(float (&d)[4], uint64_t a, uint64_t b, bool add);
void wgmma_bf16(float (&d)[16], uint64_t a, uint64_t b, bool add);
template <int kCount>
void fewer_registers() {}
template <int kCount>
void more_registers() {}

}  // namespace godwit::sm90
