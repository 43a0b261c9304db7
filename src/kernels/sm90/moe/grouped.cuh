// What the two products of the grouped form share.
#pragma once

#include "kernels/sm90/moe/groups.cuh"
#include "kernels/sm90/skinny/product.cuh"

namespace godwit::sm90 {

// Of experts of one width: the routed ones, or the shared one.
struct Width {
  int32_t inner;       // I
  skinny::Split down;  // of I: a warp's own
};

struct Work {
  Groups groups;
  skinny::X x;        // rows of the first product
  Rows<float> inner;  // [T (k + 1), I] by entry
  skinny::X inner_x;  // the same as rows of the second
  int32_t columns;    // D
  Width routed, shared_width;
  skinny::Split up;  // of D among warps
  float limit;
  // The second product: what a row of the output is made of.
  float* y;  // [CTAs][T (k + 1), columns of a CTA] f32, or null: it lies in shared memory
  Rows<const int32_t> ids;
  Rows<const float> weights;
  int32_t first_expert, held, chosen, tokens;
  Rows<float> out;  // [T, D]
};

// Rows [first, first + rows) of packed weights of `columns` columns.
template <class W, int kRowTiles>
__device__ inline void aim(skinny::Tiles<kRowTiles>& t, int tile, const void* data, const float* scales,
                           int columns, int first, int rows) {
  t.stride = static_cast<uint32_t>(columns) * sizeof(W);
  t.data[tile] = static_cast<const uint8_t*>(data) + int64_t{first} * t.stride;
  t.rows[tile] = rows;
  t.scales[tile] = scales;
  t.first_row[tile] = first;
}

constexpr size_t kMostShared = 227 << 10, kHalfShared = 113 << 10;
constexpr int64_t kNarrowRows = 64;

template <class Kernel>
inline void allow_shared(Kernel kernel) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kMostShared)),
        "experts");
}

// The second product, of weights W.
template <class W>
void launch_down(cudaStream_t stream, const Work& work);
// Of e4m3 and up to kNarrowRows rows. It fits where that many leave its ring room: one answer for all numbers
// of rows, so that a shape keeps its form.
bool fits_down_few(const Work& work);
void launch_down_few(cudaStream_t stream, Work work);

}  // namespace godwit::sm90
