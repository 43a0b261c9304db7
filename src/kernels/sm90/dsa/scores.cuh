// What the two launches of a selection share: scores of pools as words of one total order.
#pragma once

#include "kernels/sm90/dsa/paged.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {

constexpr int kChunk = 32;      // pools with one maximum
constexpr int kMostKept = 512;  // of a row

struct Scores {
  uint32_t* all;   // [rows, stride] order_of() of a pool's score, 0 past the last in a tile
  uint32_t* best;  // [rows, stride / kChunk] the largest of each chunk
  int64_t stride;  // of a row, whole vectors of maxima
};

// Rows of the step that a launch is for.
struct SelectRows {
  int32_t first, count;
  int32_t pool_shift;  // log2 P, which divides a page
  int32_t keep;
};

// Pools that row t of the step may choose from.
__device__ inline int32_t candidates_of(const SelectRows& rows, const kernels::Sequence& s, int64_t t) {
  return static_cast<int32_t>((position_of(s, t) + 1) >> rows.pool_shift);
}

bool fits_score(const kernels::IndexSelect& a);
// Scores of every row with more than rows.keep candidates.
void score(cudaStream_t stream, const StepView& step, const kernels::IndexSelect& a, const SelectRows& rows,
           const Scores& scores);

}  // namespace godwit::sm90
