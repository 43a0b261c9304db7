// The chunks of a head one after the other, as far as they depend on each other: a block owns 32 value
// columns of one head of one sequence. Each of two warps multiplies and keeps the state of 16 columns,
// transposed, in its accumulators, whose layout is that of the next product's left operand: nothing goes
// through shared memory. The state before each chunk and its u are left to the kernel that makes the outputs.
// Other warps copy the records of the chunks after.
#include "kernels/sm90/device/warpgroup.cuh"
#include "kernels/sm90/kda/chunk.cuh"

namespace godwit::sm90 {
namespace {

using namespace chunk;

constexpr int kWarps = 2, kCopiers = 64, kThreads = 32 * kWarps + kCopiers, kStages = 4;
constexpr int kParts = kDim / 16 / kWarps;
constexpr int kScanned = static_cast<int>(offsetof(Record, values) / sizeof(uint4));

struct alignas(16) Stage {
  uint4 scanned[kScanned];
  Values values[kWarps];
  __device__ const Record& record() const { return *reinterpret_cast<const Record*>(scanned); }
};
struct Ring {
  Stage stage[kStages];
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

// d[16 x 64] += a[16 x 16] b, rows of b are columns of d; the tiles of b above the diagonal are skipped.
template <bool kLower, int kSteps>
__device__ inline void multiply_rows(float (&d)[8][4], const uint32_t (&a)[kSteps][4], const uint16_t* tiles,
                                     int lane) {
#pragma unroll
  for (int pair = 0; pair < kSteps / 2; ++pair) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (kLower && 2 * pair > j / 2) continue;
      uint32_t m[4];
      const int piece = 4 * pair + lane / 8;
      load_tiles(m, tiles + piece / 8 * kTokens * 64 + swizzled(8 * j + lane % 8, piece % 8 * 8));
      mma_f16(d[j], a[2 * pair], m[0], m[1]);
      if (!kLower || 2 * pair + 1 <= j / 2) mma_f16(d[j], a[2 * pair + 1], m[2], m[3]);
    }
  }
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

// The part of one block.
struct Part {
  const kernels::Sequence& s;
  Record* records;  // of the first chunk; the next is `heads` further
  int heads;
  int first;  // tile of 16 value columns
  int32_t chunks;
};

__device__ void copy_chunks(const Part& p, Ring& ring) {
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
    for (int i = 0; i < static_cast<int>(kWarps * sizeof(Values) / 16); i += kCopiers)
      copy_async(to.values[0].v + 4 * (i + thread), record.values[p.first].v + 4 * (i + thread));
    mbarrier_arrive_copies(&ring.full[at]);
  }
  wait_copies<0>();
}

// Lane (row, quad) holds value columns row and row + 8, and of each 8 tokens or keys 2 quad and 2 quad + 1.
__device__ void multiply_chunk(const Stage& stage, Record& out, int tile, float (&s)[16][4], Scale (&scale)[2]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, quad = lane % 4;
  const Record& record = stage.record();
  float r[8][4], vn[8][4] = {};
  uint32_t state[8][4], narrowed[4][4];
  float largest[2] = {0, 0};
#pragma unroll
  for (int j = 0; j < 16; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) largest[i / 2] = fmaxf(largest[i / 2], fabsf(s[j][i]));
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) largest[h] *= scale[h].back;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      r[j][i] = -stage.values[warp].v[value_at(8 * j + 2 * quad + i % 2, lane / 4 + i / 2 * 8)];
      largest[i / 2] = fmaxf(largest[i / 2], fabsf(r[j][i]));
    }
  }
  Scale next[2];
  bool same = true;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    largest[h] = fmaxf(largest[h], __shfl_xor_sync(0xffffffffu, largest[h], 1));
    largest[h] = fmaxf(largest[h], __shfl_xor_sync(0xffffffffu, largest[h], 2));
    next[h] = scale_for(largest[h]);
    same = same && next[h].by == 1 && scale[h].by == 1;
  }
  if (__any_sync(0xffffffffu, !same)) {
#pragma unroll
    for (int j = 0; j < 16; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[j][i] = s[j][i] * scale[i / 2].back * next[i / 2].by;
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) r[j][i] *= next[i / 2].by;
    }
    scale[0] = next[0], scale[1] = next[1];
  }
  narrow(s, state);
#pragma unroll
  for (int k = 0; k < 8; ++k) out.state[tile][k][lane] = {state[k][0], state[k][1], state[k][2], state[k][3]};
  if (quad == 0) {
#pragma unroll
    for (int h = 0; h < 2; ++h) out.back[16 * tile + lane / 4 + 8 * h] = scale[h].back;
  }
  multiply_rows<false>(r, state, &record.kd[0][0][0], lane);  // S Kd - V
  narrow(r, narrowed);
  multiply_rows<true>(vn, narrowed, &record.t[0][0], lane);
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    const float2 f = *reinterpret_cast<const float2*>(record.decay + 8 * j + 2 * quad);
    s[j][0] *= f.x, s[j][1] *= f.y, s[j][2] *= f.x, s[j][3] *= f.y;
  }
  narrow(vn, narrowed);
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      uint32_t m[4];
      load_tiles_transposed(m, record.kr[j / 8][0] + swizzled(32 * pair + lane, j % 8 * 8));
      mma_f16(s[j], narrowed[2 * pair], m[0], m[1]);
      mma_f16(s[j], narrowed[2 * pair + 1], m[2], m[3]);
    }
  }
#pragma unroll
  for (int k = 0; k < 4; ++k)
    out.values[tile].u[k][lane] = {narrowed[k][0], narrowed[k][1], narrowed[k][2], narrowed[k][3]};
}

__global__ void __launch_bounds__(kThreads) scan_kernel(StepView step, Chunks a) {
  let_next_start();
  Ring& ring = *dynamic_shared<Ring>();
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
                  static_cast<int>(blockIdx.x) % kParts * kWarps, (s.rows + kTokens - 1) / kTokens};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, quad = lane % 4, row = lane / 4;
  if (warp >= kWarps) return copy_chunks(part, ring);
  const int tile = part.first + warp;
  float* stored = KdaSlot(a.state, s.slot).state() + int64_t{head} * kDim * kDim + 16 * tile + row;
  float cells[16][4];
#pragma unroll
  for (int j = 0; j < 16; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      cells[j][i] = s.first > 0 ? stored[(8 * j + 2 * quad + i % 2) * kDim + i / 2 * 8] : 0.0f;
  }
  Scale scale[2];
#pragma unroll 1
  for (int32_t c = 0; c < part.chunks; ++c) {
    const int at = c % kStages;
    mbarrier_wait(&ring.full[at], static_cast<uint32_t>(c / kStages) & 1);
    multiply_chunk(ring.stage[at], part.records[int64_t{c} * a.heads], tile, cells, scale);
    __syncwarp();
    if (lane == 0) mbarrier_arrive(&ring.empty[at]);
  }
#pragma unroll
  for (int j = 0; j < 16; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      stored[(8 * j + 2 * quad + i % 2) * kDim + i / 2 * 8] = cells[j][i] * scale[i / 2].back;
  }
}

}  // namespace

void chunk::scan_chunks(cudaStream_t stream, const StepView& step, const Chunks& a) {
  static const bool sized = [] {
    check(cudaFuncSetAttribute(scan_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Ring)),
          "kda_chunk");
    return true;
  }();
  static_cast<void>(sized);
  const int64_t sequences = step.sequences - step.decode_sequences;
  launch_dependent(stream, "kda_chunk", blocks_for(sequences * a.heads * kParts, 1), kThreads, sizeof(Ring),
                   scan_kernel, step, a);
}

}  // namespace godwit::sm90
