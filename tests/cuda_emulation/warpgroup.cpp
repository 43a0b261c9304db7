// Barriers of asynchronous copies and warpgroup products (PTX ISA, mbarrier and wgmma.mma_async).
#include "kernels/sm90/device/warpgroup.cuh"

#include "fibers.h"
#include "kernels/sm90/device/hardware.cuh"
#include "tensor/dtype.h"

namespace godwit::emulation {
extern Fibers fibers;  // runtime.cpp
}

namespace godwit::sm90 {
namespace {

struct Barrier {
  uint16_t count, pending;  // arrivals of a phase, and those still missing
  uint32_t phase;
};
static_assert(sizeof(Barrier) == sizeof(uint64_t));

Barrier load(const uint64_t* at) {
  return __builtin_bit_cast(Barrier, *at);
}
void store(uint64_t* at, const Barrier& b) {
  *at = __builtin_bit_cast(uint64_t, b);
}

// Byte `k` of row `row` of a tile, from an operand that may be some 32 bytes into its first row.
const uint8_t* byte_of(uint64_t operand, int row, int k) {
  const uintptr_t at = operand * 16, tile = at / 1024 * 1024, column = at % 1024 + static_cast<unsigned>(k);
  const uintptr_t piece = (column / 16) ^ static_cast<unsigned>(row % 8);
  return reinterpret_cast<const uint8_t*>(tile) + static_cast<unsigned>(row) * 128 + piece * 16 + column % 16;
}
float element(uint64_t operand, int row, int k) {
  return to_float(f8_e4m3{*byte_of(operand, row, k)});
}
template <int kValues>
void multiply_bf16(float (&d)[kValues], uint64_t a, uint64_t b, bool add) {
  constexpr int kDepth = 16;
  const int thread = static_cast<int>(threadIdx.x % 128), warp = thread / 32, lane = thread % 32;
  const auto row_of = [](uint64_t operand, int row, float (&to)[kDepth]) {
    for (int k = 0; k < kDepth; k += 8) {
      const auto* piece = reinterpret_cast<const uint16_t*>(byte_of(operand, row, 2 * k));
      for (int i = 0; i < 8; ++i) to[k + i] = __uint_as_float(uint32_t{piece[i]} << 16);
    }
  };
  float left[2][kDepth];
  for (int half = 0; half < 2; ++half) row_of(a, 16 * warp + lane / 4 + 8 * half, left[half]);
  for (int j = 0; j < kValues / 4; ++j)
    for (int c = 0; c < 2; ++c) {
      float right[kDepth];
      row_of(b, 8 * j + 2 * (lane % 4) + c, right);
      for (int half = 0; half < 2; ++half) {
        float sum = add ? d[4 * j + 2 * half + c] : 0.0f;
        for (int k = 0; k < kDepth; ++k) sum += left[half][k] * right[k];
        d[4 * j + 2 * half + c] = sum;
      }
    }
}

}  // namespace

void mbarrier_init(uint64_t* barrier, uint32_t count) {
  store(barrier, {static_cast<uint16_t>(count), static_cast<uint16_t>(count), 0});
}
void mbarrier_arrive(uint64_t* barrier) {
  Barrier b = load(barrier);
  if (--b.pending == 0) b.pending = b.count, ++b.phase;
  store(barrier, b);
}
void mbarrier_arrive_copies(uint64_t* barrier) {
  commit_copies();
  wait_copies_but(0);
  mbarrier_arrive(barrier);
}
void mbarrier_wait(uint64_t* barrier, uint32_t parity) {
  // The phase of a parity has ended when the one that runs has the other; one that never ran has ended for
  // parity 1.
  emulation::fibers.wait_until([barrier, parity] { return (load(barrier).phase & 1) != parity; });
}

void wgmma_e4m3(float (&d)[96], uint64_t a, uint64_t b, bool add) {
  constexpr int kDepth = 32;
  const int thread = static_cast<int>(threadIdx.x % 128), warp = thread / 32, lane = thread % 32;
  float left[2][kDepth];
  for (int half = 0; half < 2; ++half)
    for (int k = 0; k < kDepth; ++k) left[half][k] = element(a, 16 * warp + lane / 4 + 8 * half, k);
  for (int j = 0; j < 24; ++j)
    for (int c = 0; c < 2; ++c) {
      float right[kDepth];
      for (int k = 0; k < kDepth; ++k) right[k] = element(b, 8 * j + 2 * (lane % 4) + c, k);
      for (int half = 0; half < 2; ++half) {
        float sum = add ? d[4 * j + 2 * half + c] : 0.0f;
        for (int k = 0; k < kDepth; ++k) sum += left[half][k] * right[k];
        d[4 * j + 2 * half + c] = sum;
      }
    }
}

void wgmma_bf16(float (&d)[4], uint64_t a, uint64_t b, bool add) {
  multiply_bf16(d, a, b, add);
}
void wgmma_bf16(float (&d)[16], uint64_t a, uint64_t b, bool add) {
  multiply_bf16(d, a, b, add);
}

}  // namespace godwit::sm90
