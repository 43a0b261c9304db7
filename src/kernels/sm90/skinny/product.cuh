// The decode dot product (kernels spec §2.2): few rows of activations against weights that are read once.
//
// A CTA is 8 warps. A chunk is up to 32 R weight rows: R row groups of G warps, R G = 8; the warps of a group
// share K in turns: block b of 128 bytes of every row (64 bf16, 128 e4m3) belongs to warp b mod G. G is the
// largest power of two up to 8 that divides the number of blocks, or 1 for up to four blocks: it depends on K
// only. A warp keeps its weights in a ring of its own in shared memory, filled by cp.async; the product is
// mma.m16n8k16 with 16 weight rows as the one side and 8 activation rows as the other. Each block is summed
// from zero and then added in f32: e4m3 as f16 times both scales; bf16 with x cut into three bf16 parts that
// hold all 24 bits of it. At the end the G sums are added in ascending order. Nothing of this depends on how
// many rows there are.
//
// Lane (g, t) = (lane / 4, lane % 4) holds 32 consecutive bytes of a row; they are fed to the instruction as
// slots 2 t, 2 t + 1, 2 t + 8, 2 t + 9 of consecutive steps, x in the same order.
#pragma once

#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90::skinny {

constexpr int kLogWarps = 3, kWarps = 1 << kLogWarps, kThreads = 32 * kWarps;
constexpr int kStages = 3;
constexpr int kAloneBlocks = 4;   // so short a K is a warp's own: no sum over warps, and no barrier
constexpr int kBlockBytes = 128;  // of one weight row
constexpr int kLogTileRows = 5, kTileRows = 1 << kLogTileRows;  // of a row group: two tiles of 16
constexpr int kStageBytes = kTileRows * kBlockBytes;
constexpr int kColumnPitch = kTileRows + 4;  // floats between columns of the partial sums: no bank conflicts

template <class W>
constexpr int kBlockK = kBlockBytes / static_cast<int>(sizeof(W));

constexpr size_t shared_bytes(int column_tiles) {
  return size_t{kWarps} * kStages * kStageBytes +
         size_t{kWarps} * column_tiles * 8 * kColumnPitch * sizeof(float);
}

// How the warps of a row group share K: 1 << shift of them, each in `turns` turns. Made on the host: a GPU
// has no instruction for a division, and what depends on K alone would be divided again for every chunk.
struct Split {
  int32_t shift, turns;
  __host__ __device__ int warps() const { return 1 << shift; }
  __host__ __device__ int log_row_groups() const { return kLogWarps - shift; }
  __host__ __device__ int row_groups() const { return 1 << log_row_groups(); }
};
inline Split split_of(int64_t blocks) {
  int32_t shift = 0;
  while (shift < kLogWarps && blocks > kAloneBlocks && blocks % (2 << shift) == 0) ++shift;
  return {shift, static_cast<int32_t>(blocks >> shift)};
}

// What one row group multiplies in a chunk: two tiles of up to 16 rows, rows `stride` elements apart.
template <class W>
struct Tiles {
  const W* data[2];
  int rows[2];  // that exist; 0 … 16
  int64_t stride;
  const float* scales[2];  // e4m3: of the tile's matrix
  int64_t scale_stride;
  int64_t first_row[2];  // row of its matrix that a tile begins with
};

struct X {
  const float* data;  // bf16 weights: [rows, K]
  int64_t stride;
  Quantized codes;  // e4m3 weights
};

// The columns of a tile of 8 kTiles activation rows, as a lane needs them.
template <int kTiles>
struct Columns {
  int32_t row[kTiles];        // of column 8 j + lane / 4
  int32_t scaled[kTiles][2];  // of columns 8 j + 2 (lane % 4) + {0, 1}
  int count;                  // that exist

  // row_of(column) for columns below `n`; columns past the end repeat the last.
  template <class RowOf>
  __device__ Columns(int n, RowOf row_of) : count(n) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      row[j] = row_of(min(8 * j + lane / 4, n - 1));
      scaled[j][0] = row_of(min(8 * j + 2 * (lane % 4), n - 1));
      scaled[j][1] = row_of(min(8 * j + 2 * (lane % 4) + 1, n - 1));
    }
  }
};

// 16-byte piece c of row r lies at c ^ (r % 8): neither copies nor reads conflict.
__device__ inline int piece_at(int r, int c) {
  return r * kBlockBytes + ((c ^ (r & 7)) << 4);
}

// Block `b` of a warp's tiles on its way into a stage.
template <class W>
__device__ inline void fill(uint8_t* stage, const Tiles<W>& w, int64_t b) {
  const int lane = threadIdx.x % 32, piece = lane % 8;
#pragma unroll
  for (int j = 0; j < kTileRows / 4; ++j) {
    const int r = 4 * j + lane / 8, tile = r / 16, row = r % 16;
    const bool present = row < w.rows[tile];
    const W* from = w.data[tile] + (present ? row * w.stride + b * kBlockK<W> : 0);
    copy_async(stage + piece_at(r, piece), reinterpret_cast<const uint8_t*>(from) + 16 * piece, present);
  }
}

// The 32 bytes of lane (g, t) in rows g and g + 8 of a tile.
struct Bytes {
  uint32_t low[8], high[8];
};
__device__ inline Bytes read_tile(const uint8_t* stage, int tile) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  Bytes v;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint4 low = *reinterpret_cast<const uint4*>(stage + piece_at(16 * tile + g, 2 * t + half));
    const uint4 high = *reinterpret_cast<const uint4*>(stage + piece_at(16 * tile + g + 8, 2 * t + half));
    v.low[4 * half] = low.x, v.low[4 * half + 1] = low.y;
    v.low[4 * half + 2] = low.z, v.low[4 * half + 3] = low.w;
    v.high[4 * half] = high.x, v.high[4 * half + 1] = high.y;
    v.high[4 * half + 2] = high.z, v.high[4 * half + 3] = high.w;
  }
  return v;
}

template <int kTiles>
using Sums = float[2][kTiles][4];

// What a lane needs of 8 activation rows and one block, asked for before the weights are waited for.
template <class W>
struct Part;
template <>
struct Part<bf16> {
  float4 v[4];
};
template <>
struct Part<f8_e4m3> {
  uint4 codes[2];
  float scale[2];
};
template <int kTiles>
__device__ inline void load(Part<bf16>& p, const X& x, const Columns<kTiles>& columns, int j, int64_t b) {
  const float* row = x.data + columns.row[j] * x.stride + b * kBlockK<bf16> + 16 * (threadIdx.x % 4);
#pragma unroll
  for (int s = 0; s < 4; ++s) p.v[s] = *reinterpret_cast<const float4*>(row + 4 * s);
}
template <int kTiles>
__device__ inline void load(Part<f8_e4m3>& p, const X& x, const Columns<kTiles>& columns, int j, int64_t b) {
  const int64_t padded = x.codes.padded, groups = padded / kFp8Block;
  const uint8_t* codes = x.codes.codes + columns.row[j] * padded + b * kFp8Block + 32 * (threadIdx.x % 4);
  p.codes[0] = *reinterpret_cast<const uint4*>(codes);
  p.codes[1] = *reinterpret_cast<const uint4*>(codes + 16);
#pragma unroll
  for (int i = 0; i < 2; ++i) p.scale[i] = x.codes.scales[columns.scaled[j][i] * groups + b];
}

// The scales of a lane's rows g and g + 8 of both tiles.
struct Scales {
  float of[2][2];
};
__device__ inline void load(Scales&, const Tiles<bf16>&, int64_t) {}
__device__ inline void load(Scales& s, const Tiles<f8_e4m3>& w, int64_t b) {
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = threadIdx.x % 32 / 4 + 8 * half;
      const int64_t at = (w.first_row[tile] + row) / kFp8Block * w.scale_stride + b;
      s.of[tile][half] = row < w.rows[tile] ? __ldg(w.scales[tile] + at) : 0.0f;
    }
  }
}

// `first` is the part of tile 0; each further one is asked for a tile ahead.
template <int kTiles>
__device__ inline void multiply(const uint8_t* stage, const Scales&, int64_t b, const X& x,
                                const Columns<kTiles>& columns, const Part<bf16>& first, Sums<kTiles>& sums) {
  const Bytes tiles[2] = {read_tile(stage, 0), read_tile(stage, 1)};
  Part<bf16> part = first;
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    if (8 * j >= columns.count) break;
    const Part<bf16> now = part;
    if (j + 1 < kTiles) load(part, x, columns, j + 1, b);
    float large[2][4] = {}, small[2][4] = {};
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const float4 v = now.v[s];
      const float rest[4] = {rest_of(v.x), rest_of(v.y), rest_of(v.z), rest_of(v.w)};
      const float last[4] = {rest_of(rest[0]), rest_of(rest[1]), rest_of(rest[2]), rest_of(rest[3])};
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        const Bytes& w = tiles[tile];
        const uint32_t a[4] = {w.low[2 * s], w.high[2 * s], w.low[2 * s + 1], w.high[2 * s + 1]};
        mma_bf16(small[tile], a, upper_halves(last[0], last[1]), upper_halves(last[2], last[3]));
        mma_bf16(small[tile], a, upper_halves(rest[0], rest[1]), upper_halves(rest[2], rest[3]));
        mma_bf16(large[tile], a, upper_halves(v.x, v.y), upper_halves(v.z, v.w));
      }
    }
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[tile][j][i] += large[tile][i] + small[tile][i];
    }
  }
}

template <int kTiles>
__device__ inline void multiply(const uint8_t* stage, const Scales& scales, int64_t b, const X& x,
                                const Columns<kTiles>& columns, const Part<f8_e4m3>& first,
                                Sums<kTiles>& sums) {
  uint32_t a[2][8][4];
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    const Bytes v = read_tile(stage, tile);
#pragma unroll
    for (int s = 0; s < 8; ++s) {
      a[tile][s][0] = widen_two(v.low[s]);
      a[tile][s][1] = widen_two(v.high[s]);
      a[tile][s][2] = widen_two(v.low[s] >> 16);
      a[tile][s][3] = widen_two(v.high[s] >> 16);
    }
  }
  Part<f8_e4m3> part = first;
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    if (8 * j >= columns.count) break;
    const Part<f8_e4m3> now = part;
    if (j + 1 < kTiles) load(part, x, columns, j + 1, b);
    const uint32_t v[8] = {now.codes[0].x, now.codes[0].y, now.codes[0].z, now.codes[0].w,
                           now.codes[1].x, now.codes[1].y, now.codes[1].z, now.codes[1].w};
    float product[2][4] = {};
#pragma unroll
    for (int s = 0; s < 8; ++s) {
      const uint32_t b0 = widen_two(v[s]), b1 = widen_two(v[s] >> 16);
      mma_f16(product[0], a[0][s], b0, b1);
      mma_f16(product[1], a[1][s], b0, b1);
    }
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[tile][j][i] =
            fmaf(product[tile][i], scales.of[tile][i / 2] * now.scale[i % 2], sums[tile][j][i]);
      }
    }
  }
}

// A CTA's shared memory, and its walk over chunks. Chunks must be visited in order by all threads.
//   Work::chunks()                    how many this CTA has
//   Work::split(chunk)                how warps share its K
//   Work::tiles(chunk, group)         what a row group multiplies there
//   Work::x(chunk, group)             by what
//   Work::columns<kTiles>(chunk)      activation rows
//   Work::store(chunk, group, sum, thread, threads)
//                                     writes what a row group gives; sum(row, column) adds the G parts
template <class W, int kTiles, class Work>
__device__ inline void run(const Work& work, bool depends) {
  uint8_t* const memory = dynamic_shared<uint8_t>();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint8_t* ring = memory + warp * kStages * kStageBytes;
  float* partial = reinterpret_cast<float*>(memory + kWarps * kStages * kStageBytes);
  constexpr int kWarpFloats = kTiles * 8 * kColumnPitch;
  const int chunks = work.chunks();

  // The copies run ahead of the products, across chunks.
  int ahead_chunk = 0, ahead = 0, ahead_slot = 0;
  Split ahead_split{};
  Tiles<W> ahead_tiles{};
  const auto aim = [&] {
    if (ahead_chunk >= chunks) return;
    ahead_split = work.split(ahead_chunk);
    ahead_tiles = work.tiles(ahead_chunk, warp >> ahead_split.shift);
    ahead = 0;
  };
  const auto block_of = [warp](const Split& split, int turn) {
    return (warp & (split.warps() - 1)) + (int64_t{turn} << split.shift);
  };
  const auto fill_next = [&] {
    if (ahead_chunk < chunks) {
      fill(ring + ahead_slot * kStageBytes, ahead_tiles, block_of(ahead_split, ahead));
      if (++ahead == ahead_split.turns) {
        ++ahead_chunk;
        aim();
      }
    }
    commit_copies();
    ahead_slot = ahead_slot + 1 == kStages ? 0 : ahead_slot + 1;
  };
  aim();
  for (int i = 0; i < kStages - 1; ++i) fill_next();
  if (depends) wait_for_previous();

  int slot = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const Split split = work.split(chunk);
    const Tiles<W> tiles = work.tiles(chunk, warp >> split.shift);
    const X x = work.x(chunk, warp >> split.shift);
    const Columns<kTiles> columns = work.template columns<kTiles>(chunk);
    Sums<kTiles> sums = {};
    Part<W> next;
    Scales next_scales;
    load(next, x, columns, 0, block_of(split, 0));
    load(next_scales, tiles, block_of(split, 0));
    for (int turn = 0; turn < split.turns; ++turn) {
      const int64_t b = block_of(split, turn);
      fill_next();
      const Part<W> part = next;
      const Scales scales = next_scales;
      if (turn + 1 < split.turns) {
        load(next, x, columns, 0, b + split.warps());
        load(next_scales, tiles, b + split.warps());
      }
      wait_copies<kStages - 1>();
      __syncwarp();
      multiply(ring + slot * kStageBytes, scales, b, x, columns, part, sums);
      __syncwarp();
      slot = slot + 1 == kStages ? 0 : slot + 1;
    }
    float* own = partial + warp * kWarpFloats;
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int column = 8 * j + 2 * (lane % 4) + i % 2, row = 16 * tile + lane / 4 + 8 * (i / 2);
          own[column * kColumnPitch + row] = sums[tile][j][i];
        }
      }
    }
    if (split.shift == 0) {
      __syncwarp();
      work.store(
          chunk, warp, [&](int row, int column) { return own[column * kColumnPitch + row]; }, lane, 32);
      __syncwarp();
      continue;
    }
    __syncthreads();
    for (int group = 0; group < split.row_groups(); ++group) {
      const auto sum_of_parts = [&](int row, int column) {
        float sum = 0;
        for (int g = 0; g < split.warps(); ++g) {
          sum += partial[((group << split.shift) + g) * kWarpFloats + column * kColumnPitch + row];
        }
        return sum;
      };
      work.store(chunk, group, sum_of_parts, static_cast<int>(threadIdx.x), kThreads);
    }
    __syncthreads();
  }
}

}  // namespace godwit::sm90::skinny
