// The chunks of a head one after the other, as far as they depend on each other: a block owns 32 value
// columns of one head of one sequence, two warps 16 of them. Each of the two has half of the keys of their
// state, transposed, in its accumulators, and half of the chunk's tokens; the layout of accumulators is that
// of the next product's left operand, and what the other half needs goes through shared memory as f16. The
// state before each chunk and its u are left to the kernel that makes the outputs. Other warps copy the
// records of the chunks after.
#include "kernels/sm90/device/warpgroup.cuh"
#include "kernels/sm90/kda/chunk.cuh"

namespace godwit::sm90 {
namespace {

using namespace chunk;

constexpr int kPairs = 2, kWarps = 2 * kPairs, kCopiers = 64, kThreads = 32 * kWarps + kCopiers, kStages = 4;
constexpr int kParts = kDim / 16 / kPairs, kHalf = kTokens / 2;
constexpr int kScanned = static_cast<int>(offsetof(Record, values) / sizeof(uint4));

struct alignas(16) Stage {
  uint4 scanned[kScanned];
  Values values[kPairs];
  __device__ const Record& record() const { return *reinterpret_cast<const Record*>(scanned); }
};
// What the halves of a pair give each other, [half].
struct Exchange {
  uint4 state[2][4][32], rest[2][32], u[2][2][32];  // rest: of the first half alone
  float largest[2][16];                             // of the state and the values of a column
};
struct Shared {
  Stage stage[kStages];
  Exchange exchange[kPairs];
  uint64_t full[kStages], empty[kStages];
};

// The power of two that brings values of at most `largest` to 64 or below, and its inverse. Products of a
// chunk then stay below f16's largest: sums of |k| are at most sqrt(128), and no entry of T diag(beta) is
// above 1, since it is a product of contractions. A column's scale is a function of its state and its values,
// not of what lies beside it.
struct Scale {
  float by = 1, back = 1;
};
__device__ Scale scale_for(float largest) {
  if (!(largest > 64.0f)) return {};
  const uint32_t exponent = __float_as_uint(largest) >> 23;
  return {__uint_as_float((259 - exponent) << 23), __uint_as_float((exponent - 5) << 23)};
}

// Accumulators as the left operand of the next product.
template <int kTiles>
__device__ inline void narrow(const float (&d)[kTiles][4], uint32_t (&a)[kTiles / 2][4]) {
#pragma unroll
  for (int k = 0; k < kTiles / 2; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[k][i] = pack(d[2 * k + i / 2][i % 2 * 2], d[2 * k + i / 2][i % 2 * 2 + 1]);
  }
}
template <int kSteps>
__device__ inline void put(const uint32_t (&a)[kSteps][4], uint4 (*to)[32], int lane) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k) to[k][lane] = {a[k][0], a[k][1], a[k][2], a[k][3]};
}
template <int kSteps>
__device__ inline void get(uint32_t (&a)[kSteps][4], const uint4 (*from)[32], int lane) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    const uint4 v = from[k][lane];
    a[k][0] = v.x, a[k][1] = v.y, a[k][2] = v.z, a[k][3] = v.w;
  }
}
// d[16 x 32] += a[16 x 32] b: the rows of b from `row` on are columns of d, its columns lie at [column,
// column + 32) of the tile. kLower: the 16 x 16 block above the diagonal is skipped.
template <bool kLower>
__device__ inline void multiply_rows(float (&d)[4][4], const uint32_t (&a0)[4], const uint32_t (&a1)[4],
                                     const uint16_t* tile, int row, int column, int lane) {
  uint32_t m[4][4];
#pragma unroll
  for (int j = 0; j < 4; ++j)
    load_tiles(m[j], tile + (row + 8 * j) * 64 + swizzled(lane % 8, column + lane / 8 * 8));
#pragma unroll
  for (int j = 0; j < 4; ++j) mma_f16(d[j], a0, m[j][0], m[j][1]);
#pragma unroll
  for (int j = kLower ? 2 : 0; j < 4; ++j) mma_f16(d[j], a1, m[j][2], m[j][3]);
}
// s[16 x 64] += a[16 x 32] b: rows of b from `row` on.
__device__ inline void add_keys(float (&s)[8][4], const uint32_t (&a)[2][4], const uint16_t* tile, int row,
                                int lane) {
#pragma unroll
  for (int first = 0; first < 8; first += 4) {
    uint32_t m[4][4];
#pragma unroll
    for (int j = 0; j < 4; ++j)
      load_tiles_transposed(m[j], tile + row * 64 + swizzled(lane, (first + j) * 8));
#pragma unroll
    for (int j = 0; j < 4; ++j) mma_f16(s[first + j], a[0], m[j][0], m[j][1]);
#pragma unroll
    for (int j = 0; j < 4; ++j) mma_f16(s[first + j], a[1], m[j][2], m[j][3]);
  }
}

// The part of one block.
struct Part {
  const kernels::Sequence& s;
  Record* records;  // of the first chunk; the next is `heads` further
  int heads;
  int first;  // tile of 16 value columns
  int32_t chunks;
};

__device__ void copy_chunks(const Part& p, Shared& ring) {
  const int thread = static_cast<int>(threadIdx.x) - 32 * kWarps;
#pragma unroll 1
  for (int32_t c = 0; c < p.chunks; ++c) {
    const int at = c % kStages;
    mbarrier_wait(&ring.empty[at], static_cast<uint32_t>(c / kStages + 1) & 1);
    const Record& record = p.records[int64_t{c} * p.heads];
    const auto* from = reinterpret_cast<const uint4*>(&record);
    Stage& to = ring.stage[at];
#pragma unroll 4
    for (int i = thread; i < kScanned; i += kCopiers) copy_async(to.scanned + i, from + i);
#pragma unroll
    for (int i = 0; i < static_cast<int>(kPairs * sizeof(Values) / 16); i += kCopiers)
      copy_async(to.values[0].v + 4 * (i + thread), record.values[p.first].v + 4 * (i + thread));
    mbarrier_arrive_copies(&ring.full[at]);
  }
  wait_copies<0>();
}

__device__ inline void meet(int pair) {
  if (pair == 0) {
    named_barrier<1, 64>();
  } else {
    named_barrier<2, 64>();
  }
}

// Lane (row, quad) holds value columns row and row + 8, and of each 8 tokens or keys 2 quad and 2 quad + 1.
__device__ void multiply_chunk(const Stage& stage, Exchange& x, Record& out, int pair, int half, int tile,
                               float (&s)[8][4], Scale (&scale)[2]) {
  const int lane = threadIdx.x % 32, quad = lane % 4, row = lane / 4, other = 1 - half;
  const Record& record = stage.record();
  float r[4][4], u[4][4] = {};
  uint32_t state[4][4], narrowed[2][4], given[2][4];
  float largest[2] = {0, 0};
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) largest[i / 2] = fmaxf(largest[i / 2], fabsf(s[j][i]));
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) largest[h] *= scale[h].back;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float v =
          stage.values[pair].v[value_at(kHalf * half + 8 * j + 2 * quad + i % 2, row + i / 2 * 8)];
      largest[i / 2] = fmaxf(largest[i / 2], fabsf(v));
      r[j][i] = -v * scale[i / 2].by;
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    largest[h] = fmaxf(largest[h], __shfl_xor_sync(0xffffffffu, largest[h], 1));
    largest[h] = fmaxf(largest[h], __shfl_xor_sync(0xffffffffu, largest[h], 2));
    if (quad == 0) x.largest[half][row + 8 * h] = largest[h];
  }
  narrow(s, state);
  put(state, x.state[half], lane);
  meet(pair);
  Scale next[2];
  bool same = true;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    next[h] = scale_for(fmaxf(largest[h], x.largest[other][row + 8 * h]));
    same = same && next[h].by == scale[h].by;
  }
  if (__any_sync(0xffffffffu, !same)) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float by = scale[i / 2].back * next[i / 2].by;
#pragma unroll
      for (int j = 0; j < 8; ++j) s[j][i] *= by;
#pragma unroll
      for (int j = 0; j < 4; ++j) r[j][i] *= by;
    }
    scale[0] = next[0], scale[1] = next[1];
    narrow(s, state);
    put(state, x.state[half], lane);
    meet(pair);
  }
  put(state, out.state[tile] + 4 * half, lane);
  if (quad == 0 && half == 0) {
#pragma unroll
    for (int h = 0; h < 2; ++h) out.back[16 * tile + row + 8 * h] = scale[h].back;
  }
  // S Kd - V
  multiply_rows<false>(r, state[0], state[1], record.kd[half][0], kHalf * half, 0, lane);
  multiply_rows<false>(r, state[2], state[3], record.kd[half][0], kHalf * half, 32, lane);
  get(state, x.state[other], lane);
  multiply_rows<false>(r, state[0], state[1], record.kd[other][0], kHalf * half, 0, lane);
  multiply_rows<false>(r, state[2], state[3], record.kd[other][0], kHalf * half, 32, lane);
  narrow(r, narrowed);
  if (half == 0) put(narrowed, x.rest, lane);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 f = *reinterpret_cast<const float2*>(record.decay + 64 * half + 8 * j + 2 * quad);
    s[j][0] *= f.x, s[j][1] *= f.y, s[j][2] *= f.x, s[j][3] *= f.y;
  }
  multiply_rows<true>(u, narrowed[0], narrowed[1], record.t[0], kHalf * half, kHalf * half, lane);
  meet(pair);
  if (half == 1) {
    get(given, x.rest, lane);
    multiply_rows<false>(u, given[0], given[1], record.t[0], kHalf, 0, lane);
  }
  narrow(u, narrowed);
  put(narrowed, x.u[half], lane);
  put(narrowed, out.values[tile].u + 2 * half, lane);
  add_keys(s, narrowed, record.kr[half][0], kHalf * half, lane);
  meet(pair);
  get(given, x.u[other], lane);
  add_keys(s, given, record.kr[half][0], kHalf * other, lane);
}

__global__ void __launch_bounds__(kThreads) scan_kernel(StepView step, Chunks a) {
  let_next_start();
  Shared& ring = *dynamic_shared<Shared>();
  if (threadIdx.x < kStages) {
    mbarrier_init(&ring.full[threadIdx.x], kCopiers);
    mbarrier_init(&ring.empty[threadIdx.x], kWarps);
  }
  __syncthreads();
  wait_for_previous();
  const int head = static_cast<int>(blockIdx.x) / kParts % a.heads;
  const int32_t sequence = step.decode_sequences + static_cast<int32_t>(blockIdx.x) / kParts / a.heads;
  const kernels::Sequence& s = step.sequence[sequence];
  const Part part{s, a.records + int64_t{first_place(step, sequence)} * a.heads + head, a.heads,
                  static_cast<int>(blockIdx.x) % kParts * kPairs, (s.rows + kTokens - 1) / kTokens};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, quad = lane % 4, row = lane / 4;
  if (warp >= kWarps) return copy_chunks(part, ring);
  const int pair = warp / 2, half = warp % 2, tile = part.first + pair;
  float* stored =
      KdaSlot(a.state, s.slot).state() + (int64_t{head} * kDim + 64 * half) * kDim + 16 * tile + row;
  float cells[8][4];
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      cells[j][i] = s.first > 0 ? stored[(8 * j + 2 * quad + i % 2) * kDim + i / 2 * 8] : 0.0f;
  }
  Scale scale[2];
#pragma unroll 1
  for (int32_t c = 0; c < part.chunks; ++c) {
    const int at = c % kStages;
    mbarrier_wait(&ring.full[at], static_cast<uint32_t>(c / kStages) & 1);
    multiply_chunk(ring.stage[at], ring.exchange[pair], part.records[int64_t{c} * a.heads], pair, half, tile,
                   cells, scale);
    __syncwarp();
    if (lane == 0) mbarrier_arrive(&ring.empty[at]);
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      stored[(8 * j + 2 * quad + i % 2) * kDim + i / 2 * 8] = cells[j][i] * scale[i / 2].back;
  }
}

}  // namespace

void chunk::scan_chunks(cudaStream_t stream, const StepView& step, const Chunks& a) {
  static const bool sized = [] {
    check(cudaFuncSetAttribute(scan_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)),
          "kda_chunk");
    return true;
  }();
  static_cast<void>(sized);
  const int64_t sequences = step.sequences - step.decode_sequences;
  launch_dependent(stream, "kda_chunk", blocks_for(sequences * a.heads * kParts, 1), kThreads, sizeof(Shared),
                   scan_kernel, step, a);
}

}  // namespace godwit::sm90
