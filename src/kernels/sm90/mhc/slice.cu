// The mapping of prompt rows of four streams (glm5_next spec §6, kernels spec §4.3): a block has 256 columns
// of every stream, whose share of `fn` stays in registers, and walks tiles of 16 rows. Each warp has 32 of
// the columns and rings of its own, so memory never waits for another warp: it expands the streams, writes
// them back and multiplies them with `fn` on tensor cores, each value as three bf16 parts that hold all its
// bits. finish_boundary() adds the blocks' sums in the order of columns, so a row's bits depend on D only.
#include <algorithm>

#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/mhc/boundary.cuh"

namespace godwit::sm90 {
namespace {

constexpr int kStreams = Boundary::kStreams, kMapping = Boundary::kMapping, kMix = Boundary::kMix,
              kPartial = Boundary::kPartial;
constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kWarpColumns = 32, kColumns = kWarps * kWarpColumns;  // of every stream
constexpr int kGroup = 16, kGroups = kWarpColumns / kGroup;         // columns of a product's step
constexpr int kTile = 16;                                           // rows
constexpr int kStages = 2;                                          // 92 KB of a block on their way
constexpr int kPieces = kWarpColumns / 4;                           // of 16 bytes
constexpr int kSums = kMapping + 1;

// Of a warp. Odd rows have their halves swapped, so that the rows that a quarter of a warp reads do not share
// banks.
struct Stage {
  float4 values[kTile][kStreams + 1][kPieces];  // the streams, then y
  float mix[kTile][kMix];
};
struct Shared {
  Stage stages[kWarps][kStages];
  float sums[2][kWarps][kTile][kSums];
};
static_assert(sizeof(Shared) <= 227 << 10);

__device__ inline int place_of(int row, int piece) {
  return piece ^ (row % 2 * (kPieces / 2));
}

__device__ void load_tile(const Boundary& a, int64_t tile, int column, Stage& to) {
  const int lane = threadIdx.x % 32, piece = lane % kPieces;
  const int64_t first = tile * kTile;
  if (column < a.width && first < a.rows) {
#pragma unroll
    for (int r = 0; r < kTile; r += 32 / kPieces) {
      const int row = r + lane / kPieces;
      const bool present = first + row < a.rows;
      const int64_t t = present ? first + row : a.rows - 1;
      const float* from = a.streams(t) + column + 4 * piece;
#pragma unroll
      for (int j = 0; j < kStreams; ++j, from += a.width)
        copy_async(&to.values[row][j][place_of(row, piece)], from, present);
      if (a.expands)
        copy_async(&to.values[row][kStreams][place_of(row, piece)], a.y(t) + column + 4 * piece, present);
    }
    if (a.expands) {
#pragma unroll 1
      for (int i = lane; i < kTile * (kMix / 4); i += 32) {
        const int row = i / (kMix / 4), at = i % (kMix / 4) * 4;
        const bool present = first + row < a.rows;
        copy_async(&to.mix[row][at], a.old_mix(present ? first + row : a.rows - 1) + at, present);
      }
    }
  }
  commit_copies();  // a group each time, so that they can be counted
}

// Of one lane: rows lane / 4 and + 8; accumulators as mma.m16n8k16 has them, eight outputs of the mapping a
// tile.
struct Sums {
  float dot[3][4];
  float squares[2];
};

// Lane t of a quad takes columns 4 t to 4 t + 3 of a group. The order of k is free as long as both sides
// agree.
using Weights = uint2[kGroups][kStreams][3];

__device__ void multiply_tile(const Boundary& a, const Stage& s, const Weights& fn, int64_t first, int column,
                              Sums& sums) {
  const int lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    float v[2][kStreams][4];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = g + 8 * h, place = place_of(row, 4 * group + quad);
      float in[kStreams][4];
#pragma unroll
      for (int i = 0; i < kStreams; ++i) {
        const float4 f = s.values[row][i][place];
        in[i][0] = f.x, in[i][1] = f.y, in[i][2] = f.z, in[i][3] = f.w;
      }
      if (!a.expands) {
#pragma unroll
        for (int j = 0; j < kStreams; ++j) {
#pragma unroll
          for (int c = 0; c < 4; ++c) v[h][j][c] = in[j][c];
        }
        continue;
      }
      const float4 f = s.values[row][kStreams][place];
      const float y[4] = {f.x, f.y, f.z, f.w}, *m = s.mix[row];
      float* to = a.streams(min(first + row, a.rows - 1)) + column + kGroup * group + 4 * quad;
#pragma unroll
      for (int j = 0; j < kStreams; ++j, to += a.width) {
#pragma unroll
        for (int c = 0; c < 4; ++c) v[h][j][c] = m[j] * y[c];
#pragma unroll
        for (int i = 0; i < kStreams; ++i) {
          const float by = m[kStreams + i * kStreams + j];
#pragma unroll
          for (int c = 0; c < 4; ++c) v[h][j][c] = fmaf(by, in[i][c], v[h][j][c]);
        }
        if (first + row < a.rows)
          *reinterpret_cast<float4*>(to) = float4{v[h][j][0], v[h][j][1], v[h][j][2], v[h][j][3]};
      }
    }
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int c = 0; c < 4; ++c) sums.squares[h] = fmaf(v[h][j][c], v[h][j][c], sums.squares[h]);
      }
#pragma unroll
      for (int part = 0; part < 3; ++part) {
        const uint32_t left[4] = {upper_halves(v[0][j][0], v[0][j][1]), upper_halves(v[1][j][0], v[1][j][1]),
                                  upper_halves(v[0][j][2], v[0][j][3]), upper_halves(v[1][j][2], v[1][j][3])};
#pragma unroll
        for (int n = 0; n < 3; ++n) mma_bf16(sums.dot[n], left, fn[group][j][n].x, fn[group][j][n].y);
        if (part == 2) break;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
#pragma unroll
          for (int c = 0; c < 4; ++c) v[h][j][c] = rest_of(v[h][j][c]);
        }
      }
    }
  }
}

__device__ void put_sums(const Sums& sums, float (&to)[kTile][kSums]) {
  const int lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float squares = sums.squares[h];
    squares += __shfl_xor_sync(0xffffffffu, squares, 1);
    squares += __shfl_xor_sync(0xffffffffu, squares, 2);
    if (quad == 0) to[g + 8 * h][kMapping] = squares;
#pragma unroll
    for (int n = 0; n < 3; ++n) {
#pragma unroll
      for (int c = 0; c < 2; ++c) to[g + 8 * h][8 * n + 2 * quad + c] = sums.dot[n][2 * h + c];
    }
  }
}

__global__ void __launch_bounds__(kThreads, 1) slice_kernel(const __grid_constant__ Boundary a) {
  Shared& s = *dynamic_shared<Shared>();
  let_next_start();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto slices = static_cast<unsigned>(a.slices), slice = blockIdx.x % slices;
  const int column = static_cast<int>(slice) * kColumns + warp * kWarpColumns;
  Weights fn = {};
  if (column < a.width) {
    const bf16* from = a.fn + lane / 4 * a.fn_stride + column + lane % 4 * 4;
#pragma unroll
    for (int n = 0; n < 3; ++n, from += 8 * a.fn_stride) {
#pragma unroll
      for (int j = 0; j < kStreams; ++j) {
#pragma unroll
        for (int group = 0; group < kGroups; ++group)
          fn[group][j][n] = __ldg(reinterpret_cast<const uint2*>(from + j * a.width + group * kGroup));
      }
    }
  }
  wait_for_previous();
  const int64_t step = gridDim.x / slices, tiles = (a.rows + kTile - 1) / kTile;
  const int64_t begin = blockIdx.x / slices;
  Stage(&stages)[kStages] = s.stages[warp];
#pragma unroll
  for (int i = 0; i < kStages; ++i) load_tile(a, begin + i * step, column, stages[i]);
  int turn = 0;
#pragma unroll 1
  for (int64_t tile = begin; tile < tiles; tile += step, turn ^= 1) {
    const int64_t first = tile * kTile;
    Sums sums{};
    wait_copies<kStages - 1>();
    __syncwarp();
    if (column < a.width) multiply_tile(a, stages[turn], fn, first, column, sums);
    __syncwarp();  // all lanes have read the stage
    load_tile(a, tile + kStages * step, column, stages[turn]);
    put_sums(sums, s.sums[turn][warp]);
    __syncthreads();  // the sums of two tiles before are read as well
    for (int r = warp; r < kTile && first + r < a.rows; r += kWarps) {
      if (lane >= kSums) break;
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += s.sums[turn][w][r][lane];
      a.partial[((first + r) * slices + slice) * kPartial + lane] = sum;
    }
  }
}
static_assert(kStages == 2);  // turns of stages and of sums are one

}  // namespace

bool fits_boundary_slice(const kernels::MhcCollapse& a) {
  const View& fn = a.weights.fn;
  return reinterpret_cast<uintptr_t>(fn.data) % 8 == 0 && fn.stride % 4 == 0;
}

void mhc_boundary_slice(cudaStream_t stream, const kernels::MhcExpand* expand, const kernels::MhcCollapse& a,
                        const float* norm, const View& normed, float* partial, int multiprocessors) {
  if (a.x.rows == 0) return;
  static const bool sized = [] {
    check(cudaFuncSetAttribute(slice_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)),
          "mhc_boundary");
    return true;
  }();
  static_cast<void>(sized);
  Boundary b = boundary_of(expand, a, norm, normed, partial);
  b.slices = (b.width + kColumns - 1) / kColumns;
  const int64_t tiles = (b.rows + kTile - 1) / kTile;
  const int64_t parts = std::clamp<int64_t>(multiprocessors / b.slices, 1, tiles);
  launch_dependent(stream, "mhc_boundary", blocks_for(b.slices * parts, 1), kThreads, sizeof(Shared),
                   slice_kernel, b);
  finish_boundary(stream, b);
}

}  // namespace godwit::sm90
