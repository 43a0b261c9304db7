// Routed experts of prefill rows (kernels spec §4.6): e4m3 products of warpgroups, 256 rows of one expert at
// a time, which two CTAs share. The rows' codes are copied to their places first; one launch multiplies gate
// and up, applies SwiGLU and quantises, one multiplies down, one adds each row's results in ascending expert
// id, the shared expert's last. Everything a row gets depends on K only.
#include <algorithm>

#include "kernels/sm90/device/warpgroup.cuh"
#include "kernels/sm90/linear/quantize.cuh"
#include "kernels/sm90/moe/places.cuh"

namespace godwit::sm90 {
namespace {

using kernels::ExpertWeights;

constexpr int kCluster = 2, kRows = kGroupRows / kCluster, kStages = 4;
constexpr int kColumns = 256, kHalf = kColumns / 2;  // gate and up, or two halves of down's
constexpr int kFeeders = 128, kWorkers = 256, kThreads = kFeeders + kWorkers;
constexpr int kBlock = static_cast<int>(kFp8Block), kBoxRows = 64;

struct alignas(1024) Stage {
  uint8_t x[kRows * kBlock], w[kColumns * kBlock];
};
struct Shared {
  Stage stage[kStages];
  float2 by[kStages][kRows];  // a row's scale times those of both halves of the columns
  uint64_t full[kStages], empty[kStages];
};
constexpr size_t kSharedBytes = sizeof(Shared) + 1024;  // of which a part makes the stages aligned
static_assert(kSharedBytes <= 227 * 1024);

// Activations by place. Scales lie [K / 128, capacity], so that those of a tile are beside each other.
struct PlacedCodes {
  uint8_t* codes;
  float* scales;
  int64_t columns, capacity;
};

// One of the two products. Gate and up of the same columns make one tile.
struct SliceProduct {
  TensorMap x_map;
  const TensorMap* maps;  // [held, 3]
  const int32_t* groups;
  const PlaceGroup* group;
  const ExpertWeights* experts;
  PlacedCodes x;
  int32_t k_blocks;
  int32_t tiles;  // of columns
  int64_t width;  // columns of the output
  float limit;
  PlacedCodes inner;  // of gate and up
  float* y;           // [places, width]
};

// What a CTA of a cluster does at once: columns of some rows of a group, in whole or half groups.
struct Task {
  int32_t expert, tile;
  int32_t first, rows;  // places; none where a group has few
};

// f(task) for those of this cluster. Clusters take tasks in turns; those of a last turn that would leave half
// of the clusters without one are halved. What a task is comes from memory, and is asked for a task ahead.
template <class F>
__device__ void for_each_task(const SliceProduct& p, int32_t rank, F f) {
  const auto clusters = static_cast<int32_t>(gridDim.x / kCluster);
  const int32_t all = *p.groups * p.tiles, rest = all % clusters;
  const int32_t halves = 2 * rest <= clusters ? 2 * rest : 0, tasks = all - rest + max(rest, halves);
  const int32_t whole = tasks - halves;
  const auto task_at = [&](int32_t i) -> Task {
    const bool halved = i >= whole;
    const int32_t of = halved ? whole + (i - whole) / 2 : i;
    const auto at = static_cast<int32_t>(static_cast<uint32_t>(of) / static_cast<uint32_t>(p.tiles));
    PlaceGroup group = p.group[at];
    if (halved) {
      const int32_t skipped = (i - whole) % 2 * kRows;
      group.first += skipped, group.rows = min(kRows, group.rows - skipped);
    }
    // One warpgroup of each CTA takes less time than both of one.
    const int32_t share = group.rows <= kRows ? kRows / 2 : kRows;
    return {group.expert, of - at * p.tiles, group.first + rank * share,
            max(0, min(share, group.rows - rank * share))};
  };
  auto i = static_cast<int32_t>(blockIdx.x / kCluster);
  if (i >= tasks) return;
  Task next = task_at(i);
#pragma unroll 1
  for (; i < tasks; i += clusters) {
    const Task task = next;
    if (i + clusters < tasks) next = task_at(i + clusters);
    f(task);
  }
}

// Where a thread is in the ring.
struct Cursor {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// Each CTA of the cluster copies a half of the weights for both. By one thread.
template <bool kUp>
__device__ void feed(const SliceProduct& p, Shared& s, int32_t rank) {
  Cursor at;
  for_each_task(p, rank, [&](const Task& task) {
    const TensorMap* w = p.maps + 3 * task.expert + (kUp ? rank : 2);
    const int32_t w_row = kUp ? task.tile * kHalf : task.tile * kColumns + rank * kHalf;
    const int32_t boxes = (task.rows + kBoxRows - 1) / kBoxRows;
    acquire_tensor_map(w);
#pragma unroll 1
    for (int32_t k = 0; k < p.k_blocks; ++k, at.advance()) {
      Stage& stage = s.stage[at.stage];
      uint64_t* full = &s.full[at.stage];
      mbarrier_wait(&s.empty[at.stage], at.parity ^ 1);
      mbarrier_arrive_expecting(full, static_cast<uint32_t>((kColumns + boxes * kBoxRows) * kBlock));
      copy_box_to((1u << kCluster) - 1, stage.w + rank * kHalf * kBlock, w, k * kBlock, w_row, full);
      if (boxes > 0) copy_box(stage.x, &p.x_map, k * kBlock, task.first, full);
      if (boxes > 1) copy_box(stage.x + kBoxRows * kBlock, &p.x_map, k * kBlock, task.first + kBoxRows, full);
    }
  });
}

// Scales of each stage, by one warp: those that multiply wait for no memory but the stage's.
template <bool kUp>
__device__ void feed_scales(const SliceProduct& p, Shared& s, int32_t rank) {
  constexpr int kLaneRows = kRows / 32;
  const int lane = threadIdx.x % 32;
  Cursor at;
  for_each_task(p, rank, [&](const Task& task) {
    const ExpertWeights& e = p.experts[task.expert];
    const int64_t block = int64_t{task.tile} * (kUp ? 1 : 2), last = p.width / kBlock - 1;
    const Weight &low = kUp ? e.gate : e.down, &high = kUp ? e.up : e.down;
    const float* of_low = low.scales + block * low.scale_stride;
    const float* of_high = high.scales + (kUp ? block : min(block + 1, last)) * high.scale_stride;
    const float* x = p.x.scales + task.first + lane;
    const int32_t rows = task.rows - lane;
#pragma unroll 1
    for (int32_t k = 0; k < p.k_blocks; ++k, at.advance(), x += p.x.capacity) {
      float of_row[kLaneRows];
#pragma unroll
      for (int r = 0; r < kLaneRows; ++r) of_row[r] = 32 * r < rows ? x[32 * r] : 0.0f;
      const float by_low = __ldg(of_low++), by_high = __ldg(of_high++);
      mbarrier_wait(&s.empty[at.stage], at.parity ^ 1);
#pragma unroll
      for (int r = 0; r < kLaneRows; ++r)
        s.by[at.stage][lane + 32 * r] = {of_row[r] * by_low, of_row[r] * by_high};
      __syncwarp();
      if (lane == 0) mbarrier_arrive(&s.full[at.stage]);
    }
  });
}

// The quantiser of kernels/quantize.h, bit for bit, with a division for each group instead of each value: a
// quotient from the rounded reciprocal, corrected by its exact remainder, is rounded as a division's, and has
// its sign where it is zero. Where a scale's reciprocal could overflow both sides are scaled up; a scale that
// is no number makes codes that are none.
struct Quotient {
  float scale, reciprocal, up;
  uint32_t kept;  // no bits where the scale is zero
  __device__ float of(float value) const {
    const float v = value * up, rough = v * reciprocal;
    return fmaf(fmaf(rough, scale, -v), -reciprocal, rough);
  }
  __device__ uint32_t codes(float a, float b, float c, float d) const {
    return four_codes({of(a), of(b), of(c), of(d)}) & kept;
  }
};
__device__ Quotient quotient_of(float scale) {
  const float up = scale < 0x1p-100f ? 0x1p64f : 1.0f;
  const float wide = scale * up;
  const bool is_infinite = wide > 3.4e38f, is_zero = wide == 0;
  return {is_infinite ? 0.0f : wide, is_zero ? 0.0f : __fdiv_rn(1.0f, wide), up, is_zero ? 0 : ~0u};
}

__device__ float swiglu(float gate, float up, float limit) {
  gate = smaller(gate, limit);
  return gate * fast_sigmoid(gate) * larger(smaller(up, limit), -limit);
}

// Sums of 64 rows: [4 j + i] is row 16 warp + lane / 4 + 8 (i / 2), column 8 j + 2 (lane % 4) + i % 2.
using Sums = float[kHalf / 2];

// 128 columns of inner activations and their codes, of the thread's two rows. Four lanes have a row.
__device__ void store_inner(const SliceProduct& p, const Task& task, int row, Sums& gate, const Sums& up) {
  const int quad = threadIdx.x % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float largest = 0;
#pragma unroll
    for (int v = 2 * h; v < 64; v += v % 2 == 0 ? 1 : 3) {
      gate[v] = swiglu(gate[v], up[v], p.limit);
      largest = larger(largest, fabsf(gate[v]));
    }
    largest = larger(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = larger(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    const float scale = scale_of(largest, isnan(largest));
    const Quotient by = quotient_of(scale);
    const bool there = row + 8 * h < task.rows;
    const int64_t place = task.first + row + 8 * h;
    if (there && quad == 0) p.inner.scales[task.tile * p.inner.capacity + place] = scale;
    uint8_t* const to = p.inner.codes + place * p.inner.columns + task.tile * kBlock + 8 * quad;
#pragma unroll
    for (int first = 0; first < 16; first += 8) {
      // Two codes each of columns 8 j, j = first + i and first + 4 + i. Lane `quad` gets those of i = quad.
      uint32_t mine[4], got[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float *low = gate + 4 * (first + i) + 2 * h, *high = low + 16;
        mine[i] = by.codes(low[0], low[1], high[0], high[1]);
      }
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        const int of = quad ^ x;
        const uint32_t even = of & 2 ? mine[2] : mine[0], odd = of & 2 ? mine[3] : mine[1];
        got[x] = __shfl_xor_sync(0xffffffffu, of & 1 ? odd : even, x);
      }
      uint32_t from[4];  // by lane
#pragma unroll
      for (int l = 0; l < 4; ++l) {
        const int x = quad ^ l;
        const uint32_t even = x & 2 ? got[2] : got[0], odd = x & 2 ? got[3] : got[1];
        from[l] = x & 1 ? odd : even;
      }
      if (there) {
        *reinterpret_cast<uint2*>(to + 8 * first) = {__byte_perm(from[0], from[1], 0x5410),
                                                     __byte_perm(from[2], from[3], 0x5410)};
        *reinterpret_cast<uint2*>(to + 8 * first + 32) = {__byte_perm(from[0], from[1], 0x7632),
                                                          __byte_perm(from[2], from[3], 0x7632)};
      }
    }
  }
}

// A half of a tile, of which `column` is the thread's first.
__device__ void store_y(const SliceProduct& p, const Task& task, int row, int64_t column, const Sums& sums) {
  if (column >= p.width) return;  // which ends with a half
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (row + 8 * h >= task.rows) continue;
    float* const to = p.y + (task.first + row + 8 * h) * p.width + column;
#pragma unroll
    for (int j = 0; j < kHalf / 8; ++j)
      *reinterpret_cast<float2*>(to + 8 * j) = {sums[4 * j + 2 * h], sums[4 * j + 2 * h + 1]};
  }
}

__device__ void release(Shared& s, int stage) {
  __syncwarp();  // a lane that lags could not tell which phase has ended
  if (threadIdx.x % 32 < kCluster) mbarrier_arrive_at(&s.empty[stage], threadIdx.x % 32);
}

// A warpgroup has 64 rows. kAtOnce: how many stages the loop is unrolled by, 1 or all of them, for K of as
// many blocks: where the stage is known, an operand is one addition.
template <bool kUp, int kAtOnce>
__device__ void multiply(const SliceProduct& p, Shared& s, int32_t rank, int half) {
  static_assert(kAtOnce == 1 || kAtOnce == kStages);
  const int lane = threadIdx.x % 32, warp_row = 64 * half + threadIdx.x % 128 / 32 * 16;
  const int row = warp_row + lane / 4;
  const uint64_t x = wgmma_operand(s.stage[0].x + 64 * half * kBlock), w = wgmma_operand(s.stage[0].w);
  Cursor at;
  for_each_task(p, rank, [&](const Task& task) {
    if (64 * half >= task.rows) {
#pragma unroll 1
      for (int32_t k = 0; k < p.k_blocks; ++k, at.advance()) {
        mbarrier_wait(&s.full[at.stage], at.parity);
        release(s, at.stage);
      }
      return;
    }
    // A warp without rows need not add up what it has. In gate and up the branch costs more than it saves.
    const bool adds = kUp || warp_row < task.rows;
    Sums sums[2] = {};
#pragma unroll 1
    for (int32_t k = 0; k < p.k_blocks; k += kAtOnce) {
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int of = kAtOnce == 1 ? at.stage : u;
        mbarrier_wait(&s.full[of], at.parity);
        const float2 by[2] = {s.by[of][row], s.by[of][row + 8]};
        const uint32_t stage = static_cast<uint32_t>(of) * static_cast<uint32_t>(sizeof(Stage));
#pragma unroll
        for (int b = 0; b < 2; ++b) {
          Sums product;
          wgmma_settle(product);
          wgmma_begin();
#pragma unroll
          for (int step = 0; step < kBlock / 32; ++step)
            wgmma_e4m3(product, wgmma_moved(x, stage + 32 * step),
                       wgmma_moved(w, stage + b * kHalf * kBlock + 32 * step), step > 0);
          wgmma_commit();
          wgmma_wait();
          wgmma_settle(product);
          if (b == 1) release(s, of);
          if (!adds) continue;
#pragma unroll
          for (int v = 0; v < kHalf / 2; ++v)
            sums[b][v] = fmaf(product[v], b == 0 ? by[v % 4 / 2].x : by[v % 4 / 2].y, sums[b][v]);
        }
        if (kAtOnce == 1) at.advance();
      }
      if (kAtOnce > 1) at.parity ^= 1;
    }
    if constexpr (kUp) {
      store_inner(p, task, row, sums[0], sums[1]);
    } else {
#pragma unroll
      for (int b = 0; b < 2; ++b)
        store_y(p, task, row, int64_t{task.tile} * kColumns + b * kHalf + 2 * (lane % 4), sums[b]);
    }
  });
}

template <bool kUp, int kAtOnce>
__global__ void __launch_bounds__(kThreads, 1) product_kernel(const __grid_constant__ SliceProduct p) {
  Shared& s = *align_tiles<Shared>(dynamic_shared<uint8_t>());
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(&s.full[i], 2);
      mbarrier_init(&s.empty[i], kWorkers / 32 * kCluster);
    }
    mbarrier_init_done();
  }
  cluster_sync();
  begin_dependent();
  const auto rank = static_cast<int32_t>(block_of_cluster());
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);  // alike in a warp
  if (warp < kFeeders / 32) {
    fewer_registers<40>();
    if (threadIdx.x == 0) feed<kUp>(p, s, rank);
    if (warp == 1) feed_scales<kUp>(p, s, rank);
  } else {
    more_registers<232>();
    multiply<kUp, kAtOnce>(p, s, rank, (warp - kFeeders / 32) / 4);
  }
  __syncwarp();
  cluster_sync();  // the other CTA may still tell this one's barriers
}

constexpr int kRowThreads = 256, kRowWarps = kRowThreads / 32;

// Codes of a row to the place of each of its choices. A warp has 512 columns of one row, a lane 16 of them.
constexpr int kLaneColumns = 16, kLanesOfGroup = kBlock / kLaneColumns;
constexpr int64_t kWarpColumns = 32 * kLaneColumns;

__device__ void load_columns(const float* from, float (&v)[kLaneColumns]) {
  if (reinterpret_cast<uintptr_t>(from) % 16 != 0) {
#pragma unroll
    for (int i = 0; i < kLaneColumns; ++i) v[i] = from[i];
    return;
  }
#pragma unroll
  for (int i = 0; i < kLaneColumns; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + i);
    v[i] = four.x, v[i + 1] = four.y, v[i + 2] = four.z, v[i + 3] = four.w;
  }
}
__device__ void load_columns(const bf16* from, float (&v)[kLaneColumns]) {
  if (reinterpret_cast<uintptr_t>(from) % 16 != 0) {
#pragma unroll
    for (int i = 0; i < kLaneColumns; ++i) v[i] = load(from + i);
    return;
  }
#pragma unroll
  for (int i = 0; i < kLaneColumns; i += 8) {
    const uint4 eight = *reinterpret_cast<const uint4*>(from + i);
    const uint32_t two[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) v[i + 2 * j] = low_half(two[j]), v[i + 2 * j + 1] = high_half(two[j]);
  }
}

template <class X>
__global__ void __launch_bounds__(kRowThreads)
    encode_kernel(Rows<const X> x, const int32_t* place, uint32_t rows, int32_t chosen, PlacedCodes to) {
  begin_dependent();
  const auto parts = static_cast<uint32_t>((to.columns + kWarpColumns - 1) / kWarpColumns);
  const uint32_t task = blockIdx.x * kRowWarps + threadIdx.x / 32, row = task / parts,
                 lane = threadIdx.x % 32;
  if (row >= rows) return;
  const int64_t column = (task - row * parts) * kWarpColumns + kLaneColumns * lane;
  const bool inside = column < to.columns;  // which end with a group
  float v[kLaneColumns] = {};
  if (inside) load_columns(x(row) + column, v);
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kLaneColumns; ++i) largest = larger(largest, fabsf(v[i]));
#pragma unroll
  for (int offset = 1; offset < kLanesOfGroup; offset *= 2)
    largest = larger(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  const float scale = scale_of(largest, isnan(largest));
  const Quotient by = quotient_of(scale);
  uint32_t codes[kLaneColumns / 4];
#pragma unroll
  for (int i = 0; i < kLaneColumns; i += 4) codes[i / 4] = by.codes(v[i], v[i + 1], v[i + 2], v[i + 3]);
#pragma unroll 1
  for (int32_t begin = 0; begin < chosen; begin += 32) {
    const int32_t c = begin + static_cast<int32_t>(lane);  // that the lane looks at
    const int32_t own = c < chosen ? place[int64_t{row} * chosen + c] : -1;
    uint32_t there = __ballot_sync(0xffffffffu, own >= 0);
#pragma unroll 1
    for (; there != 0; there &= there - 1) {
      const int64_t at = __shfl_sync(0xffffffffu, own, __ffs(static_cast<int>(there)) - 1);
      if (!inside) continue;
      *reinterpret_cast<uint4*>(to.codes + at * to.columns + column) = {codes[0], codes[1], codes[2],
                                                                        codes[3]};
      if (lane % kLanesOfGroup == 0) to.scales[column / kBlock * to.capacity + at] = scale;
    }
  }
}

struct Combine {
  const int32_t* place;       // [T, k]
  Rows<const float> weights;  // [T, k]
  const float* y;             // [places, D]
  View shared;                // [T, D] f32 or bf16, or nothing
  int32_t chosen;
  int32_t width;
  Rows<float> out;  // [T, D]
};

// A block a row. A thread asks for several columns of a choice at once.
constexpr int kColumnsAtOnce = 4;

__global__ void __launch_bounds__(kRowThreads) combine_kernel(const __grid_constant__ Combine a) {
  begin_dependent();
  const int64_t t = blockIdx.x;
  const int32_t* const place = a.place + t * a.chosen;
  const float* const weights = a.weights(t);
#pragma unroll 1
  for (int32_t first = 4 * threadIdx.x; first < a.width; first += 4 * kColumnsAtOnce * kRowThreads) {
    const auto column = [&](int i) { return first + 4 * kRowThreads * i; };
    float4 sum[kColumnsAtOnce] = {}, shared[kColumnsAtOnce] = {};
    if (a.shared.data != nullptr) {
#pragma unroll
      for (int i = 0; i < kColumnsAtOnce; ++i) {
        if (column(i) >= a.width) continue;
        if (a.shared.dtype == DType::bf16) {
          const uint2 two = *reinterpret_cast<const uint2*>(row_of<bf16>(a.shared, t) + column(i));
          shared[i] = {low_half(two.x), high_half(two.x), low_half(two.y), high_half(two.y)};
        } else {
          shared[i] = *reinterpret_cast<const float4*>(row_of<float>(a.shared, t) + column(i));
        }
      }
    }
#pragma unroll 2
    for (int32_t c = 0; c < a.chosen; ++c) {
      const int64_t at = place[c];
      if (at < 0) continue;
      const float by = weights[c];
      float4 v[kColumnsAtOnce];
#pragma unroll
      for (int i = 0; i < kColumnsAtOnce; ++i)
        if (column(i) < a.width) v[i] = *reinterpret_cast<const float4*>(a.y + at * a.width + column(i));
#pragma unroll
      for (int i = 0; i < kColumnsAtOnce; ++i) {
        if (column(i) < a.width)
          sum[i] = {fmaf(by, v[i].x, sum[i].x), fmaf(by, v[i].y, sum[i].y), fmaf(by, v[i].z, sum[i].z),
                    fmaf(by, v[i].w, sum[i].w)};
      }
    }
#pragma unroll
    for (int i = 0; i < kColumnsAtOnce; ++i) {
      if (column(i) >= a.width) continue;
      float4 all = sum[i];
      if (a.shared.data != nullptr)
        all = {all.x + shared[i].x, all.y + shared[i].y, all.z + shared[i].z, all.w + shared[i].w};
      *reinterpret_cast<float4*>(a.out(t) + column(i)) = all;
    }
  }
}

template <bool kUp, int kAtOnce>
void launch_product(cudaStream_t stream, const SliceProduct& p, int multiprocessors) {
  const auto kernel = product_kernel<kUp, kAtOnce>;
  static const bool sized = [kernel] {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(kSharedBytes)),
          "experts");
    return true;
  }();
  static_cast<void>(sized);
  const auto blocks = static_cast<unsigned>(multiprocessors / kCluster * kCluster);
  launch_clusters(stream, "experts", kCluster, blocks, kThreads, kSharedBytes, kernel, p);
}
template <bool kUp>
void launch_product(cudaStream_t stream, const SliceProduct& p, int multiprocessors) {
  if (p.k_blocks % kStages == 0) return launch_product<kUp, kStages>(stream, p, multiprocessors);
  launch_product<kUp, 1>(stream, p, multiprocessors);
}

bool aligned_rows(const View& v) {
  return reinterpret_cast<uintptr_t>(v.data) % 16 == 0 && v.stride % 4 == 0;
}

}  // namespace

bool fits_slice(const kernels::Experts& a) {
  return a.dtype == DType::f8_e4m3 && a.expert_count > 0 && a.x.cols % kBlock == 0 && a.inner % kBlock == 0 &&
         a.inner > 0 && aligned_rows(a.out);
}

void slice_experts(cudaStream_t stream, const kernels::Experts& a, const View* shared, const View& out,
                   const SliceScratch& scratch, int multiprocessors) {
  const int64_t rows = a.x.rows, width = a.x.cols, chosen = a.ids.cols, entries = rows * chosen;
  if (rows == 0) return;
  const PlacedCodes x{scratch.x.codes, scratch.x.scales, width, entries},
      inner{scratch.inner_codes.codes, scratch.inner_codes.scales, a.inner, entries};
  Places places{};
  places.ids = rows_of<const int32_t>(a.ids);
  places.rows = static_cast<int32_t>(rows);
  places.chosen = static_cast<int32_t>(chosen);
  places.first = a.first_expert;
  places.held = a.expert_count;
  places.experts = a.experts;
  places.up_model = tensor_map(scratch.places, a.inner, width, kHalf);
  places.down_model = tensor_map(scratch.places, width, a.inner, kHalf);
  lay_out(places, scratch.places);
  find_places(stream, places);

  const unsigned encoders = blocks_for(rows * ((width + kWarpColumns - 1) / kWarpColumns), kRowWarps);
  const auto encode = [&](auto from) {
    using X = std::remove_cvref_t<decltype(*from.data)>;
    launch_dependent(stream, "experts", encoders, kRowThreads, 0, encode_kernel<X>, from, places.place,
                     static_cast<uint32_t>(rows), places.chosen, x);
  };
  if (a.x.dtype == DType::bf16) {
    encode(rows_of<const bf16>(a.x));
  } else {
    encode(rows_of<const float>(a.x));
  }
  const auto product = [&](const PlacedCodes& from, int64_t to, int columns) {
    SliceProduct p{};
    p.x_map = tensor_map(from.codes, from.capacity, from.columns, kBoxRows);
    p.maps = places.maps;
    p.groups = places.groups;
    p.group = places.group;
    p.experts = a.experts;
    p.x = from;
    p.k_blocks = static_cast<int32_t>(from.columns / kBlock);
    p.tiles = static_cast<int32_t>((to + columns - 1) / columns);
    p.width = to;
    p.limit = a.limit;
    p.inner = inner;
    p.y = scratch.y;
    return p;
  };
  launch_product<true>(stream, product(x, a.inner, kHalf), multiprocessors);
  launch_product<false>(stream, product(inner, width, kColumns), multiprocessors);
  const Combine c{
      places.place,  rows_of<const float>(a.weights), scratch.y,          shared ? *shared : View{},
      places.chosen, static_cast<int32_t>(width),     rows_of<float>(out)};
  launch_dependent(stream, "experts", blocks_for(rows, 1), kRowThreads, 0, combine_kernel, c);
}

}  // namespace godwit::sm90
