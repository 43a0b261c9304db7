// What a warp of a skinny product holds: a stage of weights in shared memory, and the activations that meet
// it.
//
// A stage is kRowTiles tiles of 16 weight rows and one block of 128 bytes of each (64 bf16, 128 e4m3). The
// product is mma.m16n8k16 with 16 weight rows as the one side and 8 activation rows as the other. Lane (g, t)
// = (lane / 4, lane % 4) holds 32 consecutive bytes of rows g and g + 8; they are fed to the instruction as
// slots 2 t, 2 t + 1, 2 t + 8, 2 t + 9 of consecutive steps, x in the same order. A block is summed from zero
// and then added in f32: e4m3 as f16 times both scales; bf16 with an f32 x cut into three bf16 parts that
// hold all 24 bits of it. With a bf16 x the sum runs on in the instruction's accumulator.
#pragma once

#include <type_traits>
#include "kernels/sm90/device/pipeline.cuh"

#include "kernels/sm90/launches.h"

namespace godwit::sm90::skinny {

constexpr int kBlockBytes = 128;  // of one weight row
constexpr int kTileRows = 16;
constexpr int kTileBytes = kTileRows * kBlockBytes;

// bf16 weights that meet bf16 activations; `bf16` alone meets f32 ones.
struct BothBf16 {
  uint16_t bits;
};

template <class W>
constexpr int kBlockK = kBlockBytes / static_cast<int>(sizeof(W));

// Weight rows of a stage: those of tile i begin at data[i], `stride` bytes apart; rows[i] of them exist
// (0 … 16). Others are not copied: a row's sums are its own, and what stale rows give is not stored.
template <int kRowTiles>
struct Tiles {
  const uint8_t* data[kRowTiles];
  int32_t rows[kRowTiles];
  uint32_t stride;
  const float* scales[kRowTiles];  // e4m3: of row 0 of the tile's matrix
  int32_t scale_stride;
  int32_t first_row[kRowTiles];  // row of its matrix that a tile begins with; one that exists
};

// Where a lane copies from and to. 16-byte piece c of row r lies at c ^ (r % 8): neither copies nor reads
// conflict.
template <int kRowTiles>
struct Copies {
  const uint8_t* from[kRowTiles];  // row lane / 8
  uint32_t step;                   // four rows on
  uint32_t present;                // bit 4 tile + j: row 4 j + lane / 8 exists

  __device__ void aim(const Tiles<kRowTiles>& w) {
    const int lane = threadIdx.x % 32;
    step = 4 * w.stride;
    present = 0;
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
      from[tile] = w.data[tile] + (static_cast<uint32_t>(lane / 8) * w.stride + 16 * (lane % 8));
#pragma unroll
      for (int j = 0; j < 4; ++j) present |= uint32_t{4 * j + lane / 8 < w.rows[tile]} << (4 * tile + j);
    }
  }
  __device__ void issue(uint8_t* stage, uint32_t block) const {
    const int lane = threadIdx.x % 32, row = lane / 8;
    uint8_t* even = stage + row * kBlockBytes + ((lane % 8 ^ row) << 4);
    uint8_t* odd = stage + row * kBlockBytes + ((lane % 8 ^ (row + 4)) << 4);
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
      const uint8_t* at = from[tile] + block * kBlockBytes;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if ((present >> (4 * tile + j) & 1) == 0) continue;
        copy_async((j % 2 == 0 ? even : odd) + tile * kTileBytes + 4 * j * kBlockBytes, at + j * step);
      }
    }
  }
};

// The same for the activation rows of a chunk, which lie behind the weights of a stage: 128 bytes of a row
// are what meets a block of e4m3 or, with bf16 rows, of bf16. Rows that do not exist are not copied either.
template <int kTiles>
struct XCopies {
  const uint8_t* from;
  uint32_t offset[2 * kTiles];  // of rows 4 i + lane / 8, in units of 16 bytes
  uint32_t present;

  // `data`: rows `row_bytes` apart; row_of(column) for columns below `n`.
  template <class RowOf>
  __device__ void aim(const uint8_t* data, int64_t row_bytes, int n, RowOf row_of) {
    const int lane = threadIdx.x % 32;
    from = data + 16 * (lane % 8);
    present = 0;
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      const int column = 4 * i + lane / 8;
      offset[i] = static_cast<uint32_t>(row_of(min(column, n - 1)) * (row_bytes / 16));
      present |= uint32_t{column < n} << i;
    }
  }
  __device__ void issue(uint8_t* to, uint32_t block) const {
    const int lane = threadIdx.x % 32, row = lane / 8;
    uint8_t* even = to + row * kBlockBytes + ((lane % 8 ^ row) << 4);
    uint8_t* odd = to + row * kBlockBytes + ((lane % 8 ^ (row + 4)) << 4);
    const uint8_t* at = from + block * kBlockBytes;
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      if ((present >> i & 1) == 0) continue;
      copy_async((i % 2 == 0 ? even : odd) + 4 * i * kBlockBytes, at + uint64_t{offset[i]} * 16);
    }
  }
};
// The 32 bytes of a lane in row 8 j + g, in halves.
__device__ inline uint4 read_x(const uint8_t* x, int j, int half) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  return *reinterpret_cast<const uint4*>(x + (8 * j + g) * kBlockBytes + (((2 * t + half) ^ g) << 4));
}

// The 32 bytes of a lane in rows g and g + 8 of a tile, in two halves.
struct Half {
  uint32_t low[4], high[4];
};
struct Bytes {
  uint32_t low[8], high[8];
};
__device__ inline Half read_half(const uint8_t* stage, int tile, int half) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint8_t* row = stage + tile * kTileBytes + g * kBlockBytes + (((2 * t + half) ^ g) << 4);
  const uint4 low = *reinterpret_cast<const uint4*>(row);
  const uint4 high = *reinterpret_cast<const uint4*>(row + 8 * kBlockBytes);
  return {{low.x, low.y, low.z, low.w}, {high.x, high.y, high.z, high.w}};
}
__device__ inline Bytes read_tile(const uint8_t* stage, int tile) {
  const Half a = read_half(stage, tile, 0), b = read_half(stage, tile, 1);
  return {{a.low[0], a.low[1], a.low[2], a.low[3], b.low[0], b.low[1], b.low[2], b.low[3]},
          {a.high[0], a.high[1], a.high[2], a.high[3], b.high[0], b.high[1], b.high[2], b.high[3]}};
}
__device__ inline Half half_of(const Bytes& v, int half) {
  const int i = 4 * half;
  return {{v.low[i], v.low[i + 1], v.low[i + 2], v.low[i + 3]},
          {v.high[i], v.high[i + 1], v.high[i + 2], v.high[i + 3]}};
}

// Activation rows: f32 or bf16 beside bf16 weights, codes beside e4m3 ones.
struct X {
  const uint8_t* data;
  int64_t row_bytes;
  Quantized codes;
};
inline X x_of(const View& rows, const Quantized& codes) {
  return {static_cast<const uint8_t*>(rows.data), rows.stride * size_of(rows.dtype), codes};
}

// The columns of a tile of 8 kTiles activation rows, as a lane needs them; past the end they repeat the last.
template <int kTiles>
struct Columns {
  int32_t row[kTiles];        // of column 8 j + lane / 4
  int32_t scaled[kTiles][2];  // e4m3: of columns 8 j + 2 (lane % 4) + {0, 1}
  int count;                  // that exist

  // row_of(column) for columns below `n`.
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

// What a lane needs of 8 activation rows and one block: read() from a stage, load() from memory.
template <class W>
struct Part;
template <>
struct Part<bf16> {
  float4 v[4];
  template <int kTiles>
  __device__ void load(const X& x, const Columns<kTiles>& columns, int j, int b) {
    const auto* row = reinterpret_cast<const float4*>(x.data + columns.row[j] * x.row_bytes) +
                      (b * (kBlockK<bf16> / 4) + 4 * (threadIdx.x % 4));
#pragma unroll
    for (int s = 0; s < 4; ++s) v[s] = row[s];
  }
};
template <>
struct Part<BothBf16> {
  uint4 v[2];
  template <int kTiles>
  __device__ void load(const X& x, const Columns<kTiles>& columns, int j, int b) {
    const auto* row =
        reinterpret_cast<const uint4*>(x.data + columns.row[j] * x.row_bytes + b * kBlockBytes) +
        2 * (threadIdx.x % 4);
    v[0] = row[0], v[1] = row[1];
  }
  __device__ void read(const uint8_t* x, int j, const float*) {
    v[0] = read_x(x, j, 0), v[1] = read_x(x, j, 1);
  }
};
template <>
struct Part<f8_e4m3> {
  uint4 codes[2];
  float scale[2];
  template <int kTiles>
  __device__ void load(const X& x, const Columns<kTiles>& columns, int j, int b) {
    const auto groups = static_cast<int32_t>(x.codes.padded / kFp8Block);
    const uint8_t* row =
        x.codes.codes + columns.row[j] * x.codes.padded + (b * kBlockBytes + 32 * (threadIdx.x % 4));
    codes[0] = *reinterpret_cast<const uint4*>(row);
    codes[1] = *reinterpret_cast<const uint4*>(row + 16);
#pragma unroll
    for (int i = 0; i < 2; ++i) scale[i] = x.codes.scales[columns.scaled[j][i] * groups + b];
  }
  __device__ void read(const uint8_t* x, int j, const float* scales) {
    codes[0] = read_x(x, j, 0), codes[1] = read_x(x, j, 1);
    scale[0] = scales[0], scale[1] = scales[1];
  }
};

// Whether activations come by the ring, with the weights they meet. Those of one column tile are asked for
// from memory a turn ahead, which leaves room for two CTAs an SM; f32 rows would take twice the room.
template <class W, int kTiles>
constexpr bool kByRing = kTiles > 1 && !std::is_same_v<W, bf16>;

// The activations of a turn. Ahead is what is asked for the turn before.
template <class W, int kTiles, bool kRing = kByRing<W, kTiles>>
struct Activations {
  struct Ahead {
    Part<W> first;
    __device__ void load(const X& x, const Columns<kTiles>& columns, int b) { first.load(x, columns, 0, b); }
  };
  const X& x;
  const Columns<kTiles>& columns;
  int b;
  Part<W> part;

  __device__ Activations(const X& from, const Columns<kTiles>& of, int block, const Ahead& ahead,
                         const uint8_t*)
      : x(from), columns(of), b(block), part(ahead.first) {}
  // Tiles in order; each further one is asked for a tile ahead.
  __device__ Part<W> next(int j) {
    const Part<W> now = part;
    if (j + 1 < kTiles) part.load(x, columns, j + 1, b);
    return now;
  }
};
template <class W, int kTiles>
struct Activations<W, kTiles, true> {
  static constexpr bool kScaled = sizeof(W) == 1;
  struct Ahead {
    float scale[kScaled ? kTiles : 1][2];
    __device__ void load(const X& x, const Columns<kTiles>& columns, int b) {
      if constexpr (kScaled) {
        const auto groups = static_cast<int32_t>(x.codes.padded / kFp8Block);
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
#pragma unroll
          for (int i = 0; i < 2; ++i) scale[j][i] = x.codes.scales[columns.scaled[j][i] * groups + b];
        }
      }
    }
  };
  Ahead scales;
  const uint8_t* staged;

  __device__ Activations(const X&, const Columns<kTiles>&, int, const Ahead& ahead,
                         const uint8_t* behind_weights)
      : scales(ahead), staged(behind_weights) {}
  __device__ Part<W> next(int j) const {
    Part<W> now;
    now.read(staged, j, scales.scale[kScaled ? j : 0]);
    return now;
  }
};

// The scales of a lane's rows g and g + 8 of all tiles in a block.
template <class W, int kRowTiles>
struct Scales {};
template <int kRowTiles>
struct Scales<f8_e4m3, kRowTiles> {
  float of[kRowTiles][2];
};
template <class W, int kRowTiles>
struct ScaleRows {
  __device__ explicit ScaleRows(const Tiles<kRowTiles>&) {}
  __device__ Scales<W, kRowTiles> load(int) const { return {}; }
};
template <int kRowTiles>
struct ScaleRows<f8_e4m3, kRowTiles> {
  const float* at[kRowTiles][2];
  __device__ explicit ScaleRows(const Tiles<kRowTiles>& w) {
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int last = max(w.rows[tile] - 1, 0);
        const int row = min(static_cast<int>(threadIdx.x % 32 / 4) + 8 * half, last);
        at[tile][half] = w.scales[tile] + (w.first_row[tile] + row) / int{kFp8Block} * w.scale_stride;
      }
    }
  }
  __device__ Scales<f8_e4m3, kRowTiles> load(int b) const {
    Scales<f8_e4m3, kRowTiles> s;
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) s.of[tile][half] = __ldg(at[tile][half] + b);
    }
    return s;
  }
};

// bf16 weights of a stage, in halves. More than two tiles do not fit the registers: they are read again for
// every column tile.
template <int kRowTiles>
struct HalfTiles {
  static constexpr bool kHeld = kRowTiles <= 2;
  const uint8_t* stage;
  Bytes held[kHeld ? kRowTiles : 1];

  __device__ explicit HalfTiles(const uint8_t* from) : stage(from) {
    if constexpr (kHeld) {
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile) held[tile] = read_tile(stage, tile);
    }
  }
  __device__ Half operator()(int tile, int half) const {
    if constexpr (kHeld) {
      return half_of(held[tile], half);
    } else {
      return read_half(stage, tile, half);
    }
  }
};

template <int kRowTiles, int kTiles>
using Sums = float[kRowTiles][kTiles][4];

// A stage of weights times the first `count` columns.
template <int kRowTiles, int kTiles>
__device__ inline void multiply(const uint8_t* stage, const Scales<bf16, kRowTiles>&, int count,
                                Activations<bf16, kTiles> x, Sums<kRowTiles, kTiles>& sums) {
  const HalfTiles<kRowTiles> tiles(stage);
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    if (8 * j >= count) break;
    const Part<bf16> now = x.next(j);
    float large[kRowTiles][4] = {}, small[kRowTiles][4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Half halves[kRowTiles];
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile) {
        halves[tile] = tiles(tile, half);
      }
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const float4 v = now.v[2 * half + s];
        const float rest[4] = {rest_of(v.x), rest_of(v.y), rest_of(v.z), rest_of(v.w)};
        const float last[4] = {rest_of(rest[0]), rest_of(rest[1]), rest_of(rest[2]), rest_of(rest[3])};
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile) {
          const Half& w = halves[tile];
          const uint32_t a[4] = {w.low[2 * s], w.high[2 * s], w.low[2 * s + 1], w.high[2 * s + 1]};
          mma_bf16(small[tile], a, upper_halves(last[0], last[1]), upper_halves(last[2], last[3]));
          mma_bf16(small[tile], a, upper_halves(rest[0], rest[1]), upper_halves(rest[2], rest[3]));
          mma_bf16(large[tile], a, upper_halves(v.x, v.y), upper_halves(v.z, v.w));
        }
      }
    }
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[tile][j][i] += large[tile][i] + small[tile][i];
    }
  }
}

template <int kRowTiles, int kTiles>
__device__ inline void multiply(const uint8_t* stage, const Scales<BothBf16, kRowTiles>&, int count,
                                Activations<BothBf16, kTiles> x, Sums<kRowTiles, kTiles>& sums) {
  const HalfTiles<kRowTiles> tiles(stage);
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    if (8 * j >= count) break;
    const Part<BothBf16> now = x.next(j);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t v[4] = {now.v[half].x, now.v[half].y, now.v[half].z, now.v[half].w};
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile) {
        const Half w = tiles(tile, half);
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          const uint32_t a[4] = {w.low[2 * s], w.high[2 * s], w.low[2 * s + 1], w.high[2 * s + 1]};
          mma_bf16(sums[tile][j], a, v[2 * s], v[2 * s + 1]);
        }
      }
    }
  }
}

template <int kRowTiles, int kTiles>
__device__ inline void multiply(const uint8_t* stage, const Scales<f8_e4m3, kRowTiles>& scales, int count,
                                Activations<f8_e4m3, kTiles> x, Sums<kRowTiles, kTiles>& sums) {
  Bytes tiles[kRowTiles];
#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile) tiles[tile] = read_tile(stage, tile);
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    if (8 * j >= count) break;
    const Part<f8_e4m3> now = x.next(j);
    const uint32_t v[8] = {now.codes[0].x, now.codes[0].y, now.codes[0].z, now.codes[0].w,
                           now.codes[1].x, now.codes[1].y, now.codes[1].z, now.codes[1].w};
    float product[kRowTiles][4] = {};
#pragma unroll
    for (int s = 0; s < 8; ++s) {
      const uint32_t b0 = widen_low(v[s]), b1 = widen_high(v[s]);
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile) {
        const Bytes& w = tiles[tile];
        const uint32_t a[4] = {widen_low(w.low[s]), widen_low(w.high[s]), widen_high(w.low[s]),
                               widen_high(w.high[s])};
        mma_f16(product[tile], a, b0, b1);
      }
    }
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[tile][j][i] =
            fmaf(product[tile][i], scales.of[tile][i / 2] * now.scale[i % 2], sums[tile][j][i]);
      }
    }
  }
}

}  // namespace godwit::sm90::skinny
