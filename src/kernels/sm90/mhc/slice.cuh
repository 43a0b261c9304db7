// The boundary of prompt rows (slice.cu): what the warps of a block share, and the four that serve the
// others.
#pragma once

#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/device/warpgroup.cuh"
#include "kernels/sm90/mhc/boundary.cuh"

namespace godwit::sm90::slice {

constexpr int kStreams = Boundary::kStreams, kMapping = Boundary::kMapping;
constexpr int kSums = kMapping + 1;  // of a row: the mapping, then the sum of squares
constexpr int kCluster = 8, kTile = 8;
constexpr int kWorkers = 8, kThreads = 32 * (kWorkers + 4);
constexpr int kWarpColumns = 64, kColumns = kWorkers * kWarpColumns;  // of every stream
constexpr int kGroup = 16, kGroups = kWarpColumns / kGroup;           // columns of a product's step
constexpr int kSlots = 3;
static_assert(kTile == kCluster);  // row r of a tile is mapped by block r
static_assert(Boundary::kMaxWidth <= kCluster * kColumns);

// The even or the odd rows, which begin in different halves of the banks: a quarter of a warp reads 64 bytes
// of one of each.
struct Half {
  float streams[kSlots][kTile / 2][kStreams][kColumns];
  float y[2][kTile / 2][kColumns];  // then a warp's sums of these rows, at the warp's first column
  float apart[16];
};
struct Shared {
  Half half[2];
  float sums[2][kCluster][kSums];  // of the row that this block maps, by block
  float4 pre[2][kTile];
  float shares[2][kCluster][kTile];  // of the sums of squares of x, by block
  float squares[kWorkers][kTile];    // and by warp
  float by[kTile];
  uint64_t full[kSlots], expanded[kSlots], collapsed[kSlots];
  // Two of each: tiles take turns.
  uint64_t summed[2], added[2], gathered[2], mapped[2], squared[2], shared[2], scaled[2];
};
static_assert(sizeof(Shared) <= 227 << 10);

// The tiles of a cluster, as many apart as there are clusters, and the columns of a block.
struct Walk {
  int64_t first;
  int rows, count, step;  // count: tiles
  int rank, column, columns;

  __device__ explicit Walk(const Boundary& a) {
    const auto tiles = static_cast<uint32_t>((a.rows + kTile - 1) / kTile);
    const uint32_t clusters = gridDim.x / kCluster, own = blockIdx.x / kCluster;
    const uint32_t each = tiles / clusters, more = tiles - each * clusters;
    first = int64_t{own} * kTile;
    step = static_cast<int>(clusters) * kTile;
    count = static_cast<int>(each + (own < more ? 1 : 0));
    rows = static_cast<int>(min(int64_t{kTile}, a.rows - row_of(count - 1))) + (count - 1) * kTile;
    rank = static_cast<int>(block_of_cluster());
    constexpr int kUnit = static_cast<int>(kFp8Block);
    const int most = (a.width + kCluster * kUnit - 1) / (kCluster * kUnit) * kUnit;
    column = rank * most;
    columns = max(0, min(most, a.width - column));
  }
  __device__ int64_t row_of(int n) const { return first + int64_t{n} * step; }
  __device__ int rows_of(int n) const { return max(0, min(kTile, rows - n * kTile)); }
};

// Where tile n lies.
struct Turn {
  int n = 0, slot = 0;
  uint32_t parity = 0;  // of the slot's barriers
  __device__ void advance() {
    ++n;
    if (++slot == kSlots) slot = 0, parity ^= 1;
  }
  __device__ Turn before() const {
    return {n - 1, slot == 0 ? kSlots - 1 : slot - 1, slot == 0 ? parity ^ 1 : parity};
  }
  __device__ int side() const { return n % 2; }
  __device__ uint32_t side_parity() const { return n / 2 % 2; }
};

__device__ inline void await(uint64_t (&barrier)[2], const Turn& at) {
  mbarrier_wait(&barrier[at.side()], at.side_parity());
}
// By the lanes of a warp that have done their part.
__device__ inline void tell(uint64_t* barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) mbarrier_arrive(barrier);
}
// What the barriers of tile n wait for, told by one thread once the tile of the same side before it is there.
__device__ inline void expect_sums(Shared& s, const Walk& walk, int n) {
  if (walk.rank < walk.rows_of(n))
    mbarrier_arrive_expecting(&s.gathered[n % 2], kCluster * kSums * uint32_t{sizeof(float)});
}
__device__ inline void expect_mapping(Shared& s, const Walk& walk, int n) {
  if (n < walk.count)
    mbarrier_arrive_expecting(&s.mapped[n % 2], static_cast<uint32_t>(walk.rows_of(n) * sizeof(float4)));
}
__device__ inline void expect_shares(Shared& s, const Walk& walk, int n) {
  if (n < walk.count) mbarrier_arrive_expecting(&s.shared[n % 2], kCluster * kTile * uint32_t{sizeof(float)});
}

// A lane has a stream of a row, and the first lanes a row of y.
__device__ inline void load_tile(const Boundary& a, Shared& s, const Walk& walk, int n, int slot) {
  const int lane = threadIdx.x % 32, row = lane / kStreams, stream = lane % kStreams, rows = walk.rows_of(n);
  const auto bytes = static_cast<uint32_t>(walk.columns * sizeof(float));
  uint64_t* const full = &s.full[slot];
  if (lane == 0) mbarrier_arrive_expecting(full, rows * (kStreams + (a.expands ? 1 : 0)) * bytes);
  __syncwarp();
  if (bytes == 0) return;
  const int64_t first = walk.row_of(n);
  if (row < rows)
    copy_bulk(s.half[row % 2].streams[slot][row / 2][stream],
              a.streams(first + row) + stream * a.width + walk.column, bytes, full);
  if (a.expands && lane < rows)
    copy_bulk(s.half[lane % 2].y[n % 2][lane / 2], a.y(first + lane) + walk.column, bytes, full);
}

__device__ inline void copy_tiles(const Boundary& a, Shared& s, const Walk& walk) {
  const int lane = threadIdx.x % 32, row = lane / kStreams, stream = lane % kStreams;
  const auto bytes = static_cast<uint32_t>(walk.columns * sizeof(float));
  for (int n = 0; n < min(2, walk.count); ++n) load_tile(a, s, walk, n, n);
#pragma unroll 1
  for (Turn at; at.n < walk.count; at.advance()) {
    mbarrier_wait(&s.expanded[at.slot], at.parity);
    if (a.expands) {
      if (row < walk.rows_of(at.n) && bytes > 0)
        copy_bulk_out(a.streams(walk.row_of(at.n) + row) + stream * a.width + walk.column,
                      s.half[row % 2].streams[at.slot][row / 2][stream], bytes);
      commit_bulk_out();
    }
    if (at.n + 2 >= walk.count) continue;
    await(s.added, at);
    const Turn before = at.before();  // whose slot is the next
    if (at.n > 0) {
      mbarrier_wait(&s.collapsed[before.slot], before.parity);
      wait_bulk_read<1>();
    }
    __syncwarp();
    load_tile(a, s, walk, at.n + 2, before.slot);
  }
  wait_bulk_out();
}

// The workers' sums go to the blocks that map these rows.
__device__ inline void add_sums(Shared& s, const Walk& walk) {
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (Turn at; at.n < walk.count; at.advance()) {
    const int side = at.side(), rows = walk.rows_of(at.n);
    await(s.summed, at);
#pragma unroll 2
    for (int r = 0; r < rows; ++r) {
      if (lane >= kSums) break;
      const float* from = &s.half[r % 2].y[side][r / 2][lane];
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWorkers; ++w) sum += from[w * kWarpColumns];
      store_async_at(&s.sums[side][walk.rank][lane], r, sum, &s.gathered[side]);
    }
    tell(&s.added[side]);
  }
}

// The row of each tile that is this block's: its mapping for all blocks, then what the next boundary needs.
__device__ inline void map_rows(const Boundary& a, Shared& s, const Walk& walk) {
  const int lane = threadIdx.x % 32, part = lane < kStreams ? 0 : lane < 2 * kStreams ? 1 : 2;
  const float scale = a.scale[part], base = lane < kMapping ? a.base[lane] : 0;
#pragma unroll 1
  for (Turn at; walk.rank < walk.rows_of(at.n); at.advance()) {
    const int side = at.side();
    await(s.gathered, at);
    float sum = 0;
    if (lane < kSums) {
#pragma unroll
      for (int b = 0; b < kCluster; ++b) sum += s.sums[side][b][lane];
    }
    __syncwarp();
    if (lane == 0) expect_sums(s, walk, at.n + 2);
    const float squares = __shfl_sync(0xffffffffu, sum, kMapping);
    const float r =
        fast_rsqrt(squares * fast_reciprocal(static_cast<float>(kStreams * a.width)) + a.norm_eps);
    const float logit = fmaf(r * sum, scale, base), activated = fast_sigmoid(logit);
    const float pre = __shfl_sync(0xffffffffu, activated, lane % kStreams) + a.hc_eps;
    store_async_at(reinterpret_cast<float*>(&s.pre[side][walk.rank]) + lane % kStreams, lane / kStreams, pre,
                   &s.mapped[side]);
    float c[kStreams][kStreams];
#pragma unroll
    for (int i = 0; i < kStreams; ++i) {
#pragma unroll
      for (int j = 0; j < kStreams; ++j) c[i][j] = __shfl_sync(0xffffffffu, logit, (2 + i) * kStreams + j);
    }
    sinkhorn(c, a.hc_eps, a.iterations);
    float* const mix = a.mix(walk.row_of(at.n) + walk.rank);
    if (lane >= kStreams && lane < 2 * kStreams) mix[lane - kStreams] = 2 * activated;
    if (lane != 0) continue;
#pragma unroll
    for (int i = 0; i < kStreams; ++i)
      reinterpret_cast<float4*>(mix)[1 + i] = float4{c[i][0], c[i][1], c[i][2], c[i][3]};
  }
}
static_assert(kCluster * kStreams == 32);

// The norms of collapsed rows.
__device__ inline void scale_rows(const Boundary& a, Shared& s, const Walk& walk) {
  const int lane = threadIdx.x % 32, row = lane % kTile;
#pragma unroll 1
  for (Turn at; at.n < walk.count; at.advance()) {
    const int side = at.side();
    await(s.squared, at);
    float share = 0;
#pragma unroll
    for (int w = 0; w < kWorkers; ++w) share += s.squares[w][row];
#pragma unroll
    for (int b = lane / kTile; b < kCluster; b += 32 / kTile)
      store_async_at(&s.shares[side][walk.rank][row], b, share, &s.shared[side]);
    await(s.shared, at);
    float total = 0;
#pragma unroll
    for (int b = 0; b < kCluster; ++b) total += s.shares[side][b][row];
    __syncwarp();
    if (lane == 0) expect_shares(s, walk, at.n + 2);
    if (lane < kTile)
      s.by[row] = fast_rsqrt(total * fast_reciprocal(static_cast<float>(a.width)) + a.norm_eps);
    tell(&s.scaled[side]);
  }
}

}  // namespace godwit::sm90::slice
