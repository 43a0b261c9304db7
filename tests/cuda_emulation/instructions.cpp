// What tensor cores and ldmatrix do, lane by lane (PTX ISA, mma.m16n8k16 and ldmatrix fragments).
#include <cuda_fp8.h>

#include "device_code.h"
#include "fibers.h"
#include "kernels/sm90/device/hardware.cuh"

namespace godwit::sm90 {
namespace {

using namespace emulation;

struct Fragment {
  uint32_t a[4], b[2];
};

// Lane (g, t) holds rows g and g + 8 of a, columns 2 t, 2 t + 1, 2 t + 8, 2 t + 9; of b the same k of column
// g; of c rows g and g + 8, columns 2 t and 2 t + 1.
template <class Widen>
void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Widen widen) {
  const Gift* all = exchange(kAllLanes, given(Fragment{{a[0], a[1], a[2], a[3]}, {b0, b1}}));
  const int g = lane() / 4, t = lane() % 4;
  for (int i = 0; i < 4; ++i) {
    const int high = i / 2, column = 2 * t + i % 2;
    float sum = c[i];
    for (int quad = 0; quad < 4; ++quad) {
      const auto row = taken<Fragment>(all[4 * g + quad]), col = taken<Fragment>(all[4 * column + quad]);
      for (int half = 0; half < 2; ++half) {
        const uint32_t left = row.a[high + 2 * half], right = col.b[half];
        sum += widen(left & 0xffff) * widen(right & 0xffff);
        sum += widen(left >> 16) * widen(right >> 16);
      }
    }
    c[i] = sum;
  }
}

float from_tf32(uint32_t bits) {
  return __uint_as_float(bits & 0xffffe000u);
}

float from_bf16(uint32_t bits) {
  return __uint_as_float(bits << 16);
}
float from_f16(uint32_t bits) {
  return static_cast<float>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(bits)));
}

// Lane i names row i % 8 of tile i / 8; lane (g, t) gets elements 2 t and 2 t + 1 of row g, or of column g.
void tiles(uint32_t (&r)[4], const void* row, bool transposed) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) fail("a row of ldmatrix is not aligned to %zu bytes", 16);
  const Gift* all = exchange(kAllLanes, given(row));
  const int g = lane() / 4, t = lane() % 4;
  const auto element = [&](int tile, int i, int j) {
    return uint32_t{taken<const uint16_t*>(all[8 * tile + i])[j]};
  };
  for (int tile = 0; tile < 4; ++tile) {
    r[tile] = transposed ? element(tile, 2 * t, g) | element(tile, 2 * t + 1, g) << 16
                         : element(tile, g, 2 * t) | element(tile, g, 2 * t + 1) << 16;
  }
}

}  // namespace

uint32_t widen_low(uint32_t codes) {
  const __half2_raw h = __nv_cvt_fp8x2_to_halfraw2(static_cast<uint16_t>(codes), __NV_E4M3);
  return static_cast<uint32_t>(h.x) | static_cast<uint32_t>(h.y) << 16;
}

void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  mma(c, a, b0, b1, from_bf16);
}
void mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  mma(c, a, b0, b1, from_f16);
}
// Lane (g, t) holds rows g and g + 8 of a, columns t and t + 4; of b the same k of column g; of c as above.
void mma_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const Gift* all = exchange(kAllLanes, given(Fragment{{a[0], a[1], a[2], a[3]}, {b0, b1}}));
  const int g = lane() / 4, t = lane() % 4;
  for (int i = 0; i < 4; ++i) {
    const int high = i / 2, column = 2 * t + i % 2;
    for (int k = 0; k < 8; ++k) {
      const auto row = taken<Fragment>(all[4 * g + k % 4]), col = taken<Fragment>(all[4 * column + k % 4]);
      c[i] += from_tf32(row.a[high + k / 4 * 2]) * from_tf32(col.b[k / 4]);
    }
  }
}
void load_tiles(uint32_t (&r)[4], const void* row) {
  tiles(r, row, false);
}
void load_tiles_transposed(uint32_t (&r)[4], const void* row) {
  tiles(r, row, true);
}

}  // namespace godwit::sm90
