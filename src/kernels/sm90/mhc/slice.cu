// The boundary of prompt rows in one pass over four streams (glm5_next spec §6, kernels spec §3.5). A cluster
// of eight blocks walks tiles of eight rows; a block has an eighth of the columns of every stream, and their
// share of `fn` in registers. Rows stay in shared memory from their load to their collapse: eight warps
// expand a tile and multiply it with `fn` (each value as three bf16 parts that hold all its bits), collapse
// the tile before it, whose mapping has come meanwhile, and normalise the one before that. Four more warps
// copy, add the workers' sums, map a row of each tile, and scale. Sums are added in the order of columns, so
// a row's bits depend on D only.
#include "kernels/sm90/mhc/slice.cuh"

#include <algorithm>

namespace godwit::sm90 {
namespace {

using namespace slice;

// A worker's lane has row lane / 4 of a tile and columns 4 t to 4 t + 3 of each group, t = lane % 4. The
// order of k is free as long as both sides agree.
using Weights = uint2[kGroups][kStreams][3];
using Collapsed = float[kGroups][4];

// Of row lane / 4; the quad's lanes share it. Where nothing is expanded, a stream is itself.
struct Mix {
  float4 c;
  float post;
  __device__ void share(float (&all_post)[kStreams], float (&all)[kStreams][kStreams]) const {
    const int quad = threadIdx.x % 32 / 4 * 4;
#pragma unroll
    for (int i = 0; i < kStreams; ++i) {
      all_post[i] = __shfl_sync(0xffffffffu, post, quad + i);
      all[i][0] = __shfl_sync(0xffffffffu, c.x, quad + i);
      all[i][1] = __shfl_sync(0xffffffffu, c.y, quad + i);
      all[i][2] = __shfl_sync(0xffffffffu, c.z, quad + i);
      all[i][3] = __shfl_sync(0xffffffffu, c.w, quad + i);
    }
  }
};
__device__ Mix load_mix(const Boundary& a, const Walk& walk, int n) {
  const int lane = threadIdx.x % 32, t = lane % 4;
  if (!a.expands) return {{t == 0 ? 1.0f : 0, t == 1 ? 1.0f : 0, t == 2 ? 1.0f : 0, t == 3 ? 1.0f : 0}, 0};
  if (lane / 4 >= walk.rows_of(n)) return {};
  const float* from = a.old_mix(walk.row_of(n) + lane / 4);
  return {reinterpret_cast<const float4*>(from)[1 + t], from[t]};
}

// The upper rows of a product are the tile's with their values' first parts, then with the third; the lower
// ones are the same rows with the second parts, then nothing.
struct Sums {
  float dot[2][3][4];  // of the two, eight outputs each
  float squares;
};

// Four columns of a row.
struct Four {
  float4 stream[kStreams], y;
};
__device__ Four load_four(const float* streams, const float* y) {
  Four f;
#pragma unroll
  for (int i = 0; i < kStreams; ++i) f.stream[i] = *reinterpret_cast<const float4*>(streams + i * kColumns);
  f.y = *reinterpret_cast<const float4*>(y);
  return f;
}

__device__ void expand_tile(float* streams, const float* y, const float (&post)[kStreams],
                            const float (&c)[kStreams][kStreams], const Weights& fn, Sums& sums) {
  Four next = load_four(streams, y);
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const Four from = next;
    float v[kStreams][4];
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      v[j][0] = post[j] * from.y.x, v[j][1] = post[j] * from.y.y;
      v[j][2] = post[j] * from.y.z, v[j][3] = post[j] * from.y.w;
#pragma unroll
      for (int i = 0; i < kStreams; ++i) {
        const float4& f = from.stream[i];
        v[j][0] = fmaf(c[i][j], f.x, v[j][0]), v[j][1] = fmaf(c[i][j], f.y, v[j][1]);
        v[j][2] = fmaf(c[i][j], f.z, v[j][2]), v[j][3] = fmaf(c[i][j], f.w, v[j][3]);
      }
    }
    if (group + 1 < kGroups) next = load_four(streams + kGroup * (group + 1), y + kGroup * (group + 1));
#pragma unroll
    for (int j = 0; j < kStreams; ++j)
      *reinterpret_cast<float4*>(streams + j * kColumns + kGroup * group) =
          float4{v[j][0], v[j][1], v[j][2], v[j][3]};
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      float(&u)[4] = v[j];
#pragma unroll
      for (int k = 0; k < 4; ++k) sums.squares = fmaf(u[k], u[k], sums.squares);
      uint32_t parts[4];
      parts[0] = upper_halves(u[0], u[1]), parts[2] = upper_halves(u[2], u[3]);
#pragma unroll
      for (int k = 0; k < 4; ++k) u[k] = rest_of(u[k]);
      parts[1] = upper_halves(u[0], u[1]), parts[3] = upper_halves(u[2], u[3]);
#pragma unroll
      for (int n = 0; n < 3; ++n) mma_bf16(sums.dot[0][n], parts, fn[group][j][n].x, fn[group][j][n].y);
#pragma unroll
      for (int k = 0; k < 4; ++k) u[k] = rest_of(u[k]);
      const uint32_t last[4] = {upper_halves(u[0], u[1]), 0, upper_halves(u[2], u[3]), 0};
#pragma unroll
      for (int n = 0; n < 3; ++n) mma_bf16(sums.dot[1][n], last, fn[group][j][n].x, fn[group][j][n].y);
    }
  }
}

// Where y was, of which the warp needs no more.
__device__ void put_sums(Shared& s, int side, const Sums& sums) {
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  float* const to = &s.half[g % 2].y[side][g / 2][warp * kWarpColumns];
#pragma unroll
  for (int n = 0; n < 3; ++n) {
#pragma unroll
    for (int c = 0; c < 2; ++c)
      to[8 * n + 2 * t + c] = sums.dot[0][n][c] + (sums.dot[0][n][2 + c] + sums.dot[1][n][c]);
  }
  float squares = sums.squares;
  squares += __shfl_xor_sync(0xffffffffu, squares, 1);
  squares += __shfl_xor_sync(0xffffffffu, squares, 2);
  if (t == 0) to[kMapping] = squares;
}

// Returns the lane's share of the sum of squares.
__device__ float collapse_tile(const float4& pre, const float* streams, Collapsed& x) {
  const float by[kStreams] = {pre.x, pre.y, pre.z, pre.w};
  float total = 0;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    float(&to)[4] = x[group];
    to[0] = to[1] = to[2] = to[3] = 0;
#pragma unroll
    for (int i = 0; i < kStreams; ++i) {
      const float4 f = *reinterpret_cast<const float4*>(streams + i * kColumns + kGroup * group);
      to[0] = fmaf(by[i], f.x, to[0]), to[1] = fmaf(by[i], f.y, to[1]);
      to[2] = fmaf(by[i], f.z, to[2]), to[3] = fmaf(by[i], f.w, to[3]);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) total = fmaf(to[k], to[k], total);
  }
  return total;
}

// `norm`: of the warp's columns 2 lane and 2 lane + 1; `has_row`: the lane has one.
__device__ void store_tile(const Boundary& a, bool has_row, int64_t row, int column, float by,
                           const float2& norm, const Collapsed& x) {
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const int at = column + kGroup * group;
    const float(&v)[4] = x[group];
    if (a.norm == nullptr) {
      if (has_row) *reinterpret_cast<float4*>(a.x(row) + at) = float4{v[0], v[1], v[2], v[3]};
      continue;
    }
    float w[4];
#pragma unroll
    for (int k = 0; k < 4; ++k)
      w[k] = __shfl_sync(0xffffffffu, k % 2 == 0 ? norm.x : norm.y,
                         group * (kGroup / 2) + threadIdx.x % 4 * 2 + k / 2);
    const float4 n{v[0] * by * w[0], v[1] * by * w[1], v[2] * by * w[2], v[3] * by * w[3]};
    if (has_row) a.normed.put(row, at, n);
  }
}
static_assert(kWarpColumns == 64);

__device__ void work(const Boundary& a, Shared& s, const Walk& walk, const Weights& fn) {
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int own = warp * kWarpColumns + 4 * t;
  const bool has_columns = own < walk.columns;  // alike in a warp
  Half& half = s.half[g % 2];
  const auto streams = [&](int slot) { return &half.streams[slot][g / 2][0][own]; };
  Mix mix = load_mix(a, walk, 0);
  Collapsed x = {};
#pragma unroll 1
  for (Turn at; at.n < walk.count + 2; at.advance()) {
    if (at.n < walk.count) {
      float post[kStreams], c[kStreams][kStreams];
      mix.share(post, c);
      Sums sums{};
      mbarrier_wait(&s.full[at.slot], at.parity);
      __syncwarp();
      if (has_columns)
        expand_tile(streams(at.slot), a.expands ? &half.y[at.side()][g / 2][own] : streams(at.slot), post, c,
                    fn, sums);
      __syncwarp();  // y has been read
      put_sums(s, at.side(), sums);
      fence_products();  // asynchronous copies follow
      tell(&s.summed[at.side()]);
      tell(&s.expanded[at.slot]);
      mix = load_mix(a, walk, at.n + 1);
    }
    if (const int n = at.n - 2; n >= 0) {
      float2 norm{};
      if (a.norm != nullptr && has_columns)
        norm = __ldg(reinterpret_cast<const float2*>(a.norm + walk.column) + threadIdx.x);
      mbarrier_wait(&s.scaled[n % 2], n / 2 % 2);
      if (has_columns)
        store_tile(a, g < walk.rows_of(n), walk.row_of(n) + g, walk.column + own, s.by[g], norm, x);
      __syncwarp();
    }
    if (at.n >= 1 && at.n <= walk.count) {
      const Turn before = at.before();
      await(s.mapped, before);
      const float4 pre = s.pre[before.side()][g];
      float total = has_columns ? collapse_tile(pre, streams(before.slot), x) : 0;
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      if (t == 0) s.squares[warp][g] = total;
      if (threadIdx.x == 0) expect_mapping(s, walk, before.n + 2);
      tell(&s.squared[before.side()]);
      tell(&s.collapsed[before.slot]);
    }
  }
}

__device__ void load_weights(const Boundary& a, const Walk& walk, Weights& fn) {
  const int own = threadIdx.x / 32 * kWarpColumns + 4 * (threadIdx.x % 4);
  if (own >= walk.columns) return;
  const bf16* from = a.fn + threadIdx.x % 32 / 4 * a.fn_stride + walk.column + own;
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

__global__ void __launch_bounds__(kThreads, 1) slice_kernel(const __grid_constant__ Boundary a) {
  Shared& s = *dynamic_shared<Shared>();
  let_next_start();
  const Walk walk(a);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kSlots; ++i) {
      mbarrier_init(&s.full[i], 1);
      mbarrier_init(&s.expanded[i], kWorkers);
      mbarrier_init(&s.collapsed[i], kWorkers);
    }
    for (int i = 0; i < 2; ++i) {
      mbarrier_init(&s.summed[i], kWorkers);
      mbarrier_init(&s.squared[i], kWorkers);
      for (uint64_t* one : {&s.added[i], &s.gathered[i], &s.mapped[i], &s.shared[i], &s.scaled[i]})
        mbarrier_init(one, 1);
    }
    mbarrier_init_done();
    for (int n = 0; n < 2; ++n)
      expect_sums(s, walk, n), expect_mapping(s, walk, n), expect_shares(s, walk, n);
  }
  cluster_sync();
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);  // alike in a warp
  if (warp < kWorkers) {
    more_registers<232>();
    Weights fn = {};
    load_weights(a, walk, fn);
    wait_for_previous();
    work(a, s, walk, fn);
  } else {
    fewer_registers<40>();
    wait_for_previous();
    if (warp == kWorkers) copy_tiles(a, s, walk);
    if (warp == kWorkers + 1) add_sums(s, walk);
    if (warp == kWorkers + 2) map_rows(a, s, walk);
    if (warp == kWorkers + 3) scale_rows(a, s, walk);
  }
  __syncwarp();
  cluster_sync();  // other blocks may still write here
}

}  // namespace

void mhc_boundary_slice(cudaStream_t stream, const kernels::MhcExpand* expand, const kernels::MhcCollapse& a,
                        const float* norm, const View& normed) {
  if (a.x.rows == 0) return;
  static const int64_t most = [] {
    check(cudaFuncSetAttribute(slice_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)),
          "mhc_boundary");
    return most_clusters("mhc_boundary", kCluster, kThreads, sizeof(Shared), slice_kernel);
  }();
  const Boundary b = boundary_of(expand, a, norm, normed);
  const int64_t clusters = std::min(most, (b.rows + kTile - 1) / kTile);
  launch_clusters(stream, "mhc_boundary", kCluster, blocks_for(clusters * kCluster, 1), kThreads,
                  sizeof(Shared), slice_kernel, b);
}

}  // namespace godwit::sm90
