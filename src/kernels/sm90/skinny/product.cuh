// The decode dot product (kernels spec §2.2): few rows of activations against weights that are read once.
//
// A CTA is 8 warps. A chunk is up to 16 or 32 weight rows of R row groups of G warps, R G = 8; the warps of a
// group share K in turns: block b of 128 bytes of every row belongs to warp b mod G. G is the largest power
// of two up to 8 that divides the number of blocks, or 1 for up to four blocks: it depends on K only. A warp
// keeps its weights in a ring of its own in shared memory, filled by cp.async across chunks; at the end of a
// chunk the G sums are added in ascending order. Nothing of this depends on how many rows there are.
#pragma once

#include "kernels/sm90/skinny/tile.cuh"

namespace godwit::sm90::skinny {

constexpr int kLogWarps = 3, kWarps = 1 << kLogWarps, kThreads = 32 * kWarps;
constexpr int kAloneBlocks = 4;  // so short a K is a warp's own: no sum over warps, and no barrier

// A form: kRowTiles tiles of 16 weight rows meet kTiles tiles of 8 activation rows. Partial sums are joined
// 32 rows at a time. Two sets of them let one be added up while the next is written, where there is room.
template <class W, int kRowTiles, int kTiles>
struct Form {
  static constexpr bool kRing = kByRing<W, kTiles>;
  static constexpr int kWeightBytes = kRowTiles * kTileBytes;
  static constexpr int kStageBytes = kWeightBytes + (kRing ? kTiles * 8 * kBlockBytes : 0);
  static constexpr int kStages = kRing            ? 6 * kTileBytes * 2 / kStageBytes
                                 : kRowTiles == 4 ? 2
                                                  : 6 / kRowTiles;
  static constexpr int kRingBytes = kStages * kStageBytes;  // of a warp
  static constexpr int kJoinedTiles = kRowTiles < 2 ? 1 : 2;
  static constexpr int kPitch = kJoinedTiles * kTileRows + 1;  // floats between columns of partial sums
  static constexpr int kWarpFloats = kTiles * 8 * kPitch;
  static constexpr int kSets = kRing || kRowTiles == 4 ? 1 : 2;
  static constexpr size_t kSharedBytes = size_t{kWarps} * (kRingBytes + kSets * kWarpFloats * sizeof(float));
};

// How the warps of a row group share K: 1 << shift of them, each in `turns` turns. Made on the host: a GPU
// has no instruction for a division.
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

// A CTA's walk over its chunks. All threads visit them in the same order.
//   Work::Chunk                       one of them; `bool valid`
//   Work::first(), next(chunk)
//   Work::split(chunk)                how warps share its K
//   Work::tiles(chunk, group)         what a row group multiplies there
//   Work::x(chunk, group)             by what
//   Work::count(chunk, group), row_of(chunk, group)
//                                     how many of its rows, and which: a function of the column
//   Work::store(chunk, group, first, sum, thread, threads)
//                                     writes what a row group gives from row `first` on, up to 32 of them;
//                                     sum(row, column) adds the G parts of row first + row
//   Work::claim(), publish(chunk, claimed)
//                                     for chunks that are handed out on the way: as a chunk begins, and
//                                     before the barrier that ends it (where warps share K)
//   Work::wait()                      before activations are read

// What meets the weights of a chunk in a row group.
template <class W, int kRowTiles, int kTiles>
struct Reader {
  X x;
  Columns<kTiles> columns;
  ScaleRows<W, kRowTiles> scales;

  template <class Work>
  __device__ Reader(const Work& work, const typename Work::Chunk& chunk, int group)
      : x(work.x(chunk, group)),
        columns(work.count(chunk, group), work.row_of(chunk, group)),
        scales(work.tiles(chunk, group)) {}
};

// A place of the copies, which run ahead of the products and across chunks.
template <class Work>
struct Walk {
  typename Work::Chunk chunk;
  Split split{};
  int turn = 0, slot = 0;

  // Begins a turn of a valid chunk; true when it is its first, where copies are aimed.
  __device__ bool begin(const Work& work) {
    if (turn == 0) split = work.split(chunk);
    return turn == 0;
  }
  // The row group of this warp, and its block of K.
  __device__ int group(int warp) const { return warp >> split.shift; }
  __device__ uint32_t block(int warp) const {
    return static_cast<uint32_t>((warp & (split.warps() - 1)) + (turn << split.shift));
  }
  __device__ void end(const Work& work, int stages) {
    if (chunk.valid && ++turn == split.turns) {
      turn = 0;
      work.next(chunk);
    }
    slot = slot + 1 == stages ? 0 : slot + 1;
  }
};

template <class W, int kRowTiles, int kTiles, class Work>
__device__ inline void run(const Work& work) {
  using F = Form<W, kRowTiles, kTiles>;
  constexpr int kStageBytes = F::kStageBytes, kDepth = F::kStages, kFloats = F::kWarpFloats;
  constexpr int kPitch = F::kPitch, kJoined = F::kJoinedTiles;
  uint8_t* const memory = dynamic_shared<uint8_t>();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint8_t* const ring = memory + warp * F::kRingBytes;
  float* partial = reinterpret_cast<float*>(memory + kWarps * F::kRingBytes);
  int other_set = F::kSets == 2 ? kWarps * kFloats : 0;

  typename Work::Chunk chunk = work.first();
  Copies<kRowTiles> copies{};
  XCopies<F::kRing ? kTiles : 1> x_copies{};
  const auto copy_weights = [&](const Walk<Work>& at, bool aims) {
    if (aims) copies.aim(work.tiles(at.chunk, at.group(warp)));
    copies.issue(ring + at.slot * kStageBytes, at.block(warp));
  };
  const auto copy_x = [&](const Walk<Work>& at, bool aims) {
    if (aims) {
      const X x = work.x(at.chunk, at.group(warp));
      x_copies.aim(sizeof(W) == 1 ? x.codes.codes : x.data, sizeof(W) == 1 ? x.codes.padded : x.row_bytes,
                   work.count(at.chunk, at.group(warp)), work.row_of(at.chunk, at.group(warp)));
    }
    x_copies.issue(ring + at.slot * kStageBytes + F::kWeightBytes, at.block(warp));
  };
  // Weights are asked for before the wait, the activations they meet after it.
  Walk<Work> ahead{chunk};
#pragma unroll 1
  for (int i = 0; i < kDepth - 1; ++i) {
    if (ahead.chunk.valid) copy_weights(ahead, ahead.begin(work));
    if constexpr (!F::kRing) commit_copies();
    ahead.end(work, kDepth);
  }
  work.wait();
  if (!chunk.valid) return;
  if constexpr (F::kRing) {
    Walk<Work> again{chunk};
#pragma unroll 1
    for (int i = 0; i < kDepth - 1; ++i) {
      if (again.chunk.valid) copy_x(again, again.begin(work));
      commit_copies();  // the first with all the weights so far
      again.end(work, kDepth);
    }
  }
  const auto fill_next = [&] {
    if (ahead.chunk.valid) {
      const bool aims = ahead.begin(work);
      copy_weights(ahead, aims);
      if constexpr (F::kRing) copy_x(ahead, aims);
    }
    commit_copies();
    ahead.end(work, kDepth);
  };

  // What does not come by the ring is asked for a turn ahead, across chunks too.
  Split split = work.split(chunk);
  Reader<W, kRowTiles, kTiles> reader(work, chunk, warp >> split.shift);
  int b = warp & (split.warps() - 1), slot = 0;
  typename Activations<W, kTiles>::Ahead next_x;
  next_x.load(reader.x, reader.columns, b);
  Scales<W, kRowTiles> next_scales = reader.scales.load(b);
#pragma unroll 1
  while (true) {
    typename Work::Chunk following = chunk;
    work.next(following);
    const bool more = following.valid;
    if (!more) following = chunk;
    const Split next_split = work.split(following);
    const Reader<W, kRowTiles, kTiles> next_reader(work, following, warp >> next_split.shift);
    const int32_t claimed = work.claim();
    Sums<kRowTiles, kTiles> sums = {};
#pragma unroll 1
    for (int turn = 1; turn <= split.turns; ++turn) {
      fill_next();
      const auto x = next_x;
      const Scales<W, kRowTiles> scales = next_scales;
      const int now = b;
      if (turn < split.turns) {
        b += split.warps();
        next_x.load(reader.x, reader.columns, b);
        next_scales = reader.scales.load(b);
      } else {
        b = warp & (next_split.warps() - 1);
        next_x.load(next_reader.x, next_reader.columns, b);
        next_scales = next_reader.scales.load(b);
      }
      wait_copies<kDepth - 1>();
      __syncwarp();
      const uint8_t* const stage = ring + slot * kStageBytes;
      multiply(stage, scales, reader.columns.count,
               Activations<W, kTiles>(reader.x, reader.columns, now, x, stage + F::kWeightBytes), sums);
      __syncwarp();
      slot = slot + 1 == kDepth ? 0 : slot + 1;
    }
    work.publish(chunk, claimed);
    const bool alone = split.shift == 0;
    float* const own = partial + warp * kFloats;
#pragma unroll
    for (int joined = 0; joined < kRowTiles; joined += kJoined) {
      if (joined > 0) __syncthreads();
#pragma unroll
      for (int tile = 0; tile < kJoined; ++tile) {
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int column = 8 * j + 2 * (lane % 4) + i % 2, row = 16 * tile + lane / 4 + 8 * (i / 2);
            own[column * kPitch + row] = sums[joined + tile][j][i];
          }
        }
      }
      if (alone) {
        __syncwarp();
      } else {
        __syncthreads();
      }
      // Alone a warp stores its own rows; else all warps store those of each row group.
      const int groups = alone ? 1 : split.row_groups();
#pragma unroll 1
      for (int r = 0; r < groups; ++r) {
        const float* first = alone ? own : partial + (r << split.shift) * kFloats;
        const auto sum_of_parts = [&](int row, int column) {
          const float* at = first + column * kPitch + row;
          float sum = 0;
#pragma unroll 1
          for (int g = 0; g < split.warps(); ++g) sum += at[g * kFloats];
          return sum;
        };
        work.store(chunk, alone ? warp : r, joined * kTileRows, sum_of_parts,
                   alone ? lane : static_cast<int>(threadIdx.x), alone ? 32 : kThreads);
      }
    }
    if (!more) return;
    if (alone) {
      __syncwarp();
    } else {
      if (F::kSets == 1) __syncthreads();
      partial += other_set;
      other_set = -other_set;
    }
    chunk = following;
    split = next_split;
    reader = next_reader;
  }
}

}  // namespace godwit::sm90::skinny
