// The recurrence of glm5_next spec §8.4, plain form, for both arithmetic families: the state is f32 after
// every row, so slicing a prompt changes no bit. One block owns 32 value columns of one head of one sequence
// and walks its rows; four warps share the keys, and their partial sums are added in warp order.
#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/kda/slot.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {

void replay_window(cudaStream_t stream, const StepView& step, const kernels::KdaReplay& a,
                   int32_t first);  // conv.cu

namespace {

using kernels::RowKind;
using kernels::Sequence;

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kTile = 32;        // value columns of a block
constexpr float kL2Eps = 1e-6f;  // added to the sum of squares (trap T7)

struct Recurrence {
  Rows<const float> qkv;     // [T, 3 W]
  Rows<const float> forget;  // [T, W]
  Rows<const float> beta;    // [T, H]
  const float *a_exp, *dt_bias;
  float lower_bound;
  kernels::KdaState state;
  Rows<float> out;  // [T, W]
  int64_t heads;
  int d;
  int32_t first;  // sequence of block 0
};

// Shared memory of a block.
struct Tile {
  float* s;      // [d, kTile]
  float *q, *k;  // [d] normalised
  float* decay;  // [d] e^g
  float* part;   // [2, kWarps, kTile]
};
__device__ Tile carve(float* p, int d) {
  float* vectors = p + d * kTile;
  return {p, vectors, vectors + d, vectors + 2 * d, vectors + 3 * d};
}
constexpr size_t shared_bytes(int64_t d) {
  return static_cast<size_t>(d * (kTile + 3) + 2 * kWarps * kTile) * sizeof(float);
}

// Fills q, k and decay of a row; every warp computes both norms, in the same order.
__device__ void load_row(const Recurrence& a, const Tile& tile, const Sequence& s, int64_t t, int64_t head,
                         bool keeps) {
  const int d = a.d;
  const int64_t width = a.heads * d;
  const float* row = a.qkv(t) + head * d;
  float q_squares = 0, k_squares = 0;
#pragma unroll 4
  for (int i = threadIdx.x % 32; i < d; i += 32) {
    q_squares = fmaf(row[i], row[i], q_squares);
    k_squares = fmaf(row[width + i], row[width + i], k_squares);
  }
  const float q_norm = sqrtf(warp_sum(q_squares) + kL2Eps) * sqrtf(static_cast<float>(d));
  const float k_norm = sqrtf(warp_sum(k_squares) + kL2Eps);
  for (int i = threadIdx.x; i < d; i += kThreads) {
    const int64_t c = head * d + i;
    const float g = a.lower_bound * sigmoid(a.a_exp[head] * (a.forget(t)[c] + a.dt_bias[c]));
    const float k = row[width + i] / k_norm;
    tile.q[i] = row[i] / q_norm;
    tile.k[i] = k;
    tile.decay[i] = decay_of(g);
    if (!keeps) continue;
    const KdaSlot slot(a.state, s.slot);
    const int64_t at = (t - s.row) * width + c;
    slot.pending_key()[at] = k;
    slot.pending_decay()[at] = g;
  }
}

__device__ float sum_of_warps(const float* part, int column) {
  float sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += part[w * kTile + column];
  return sum;
}

__global__ void __launch_bounds__(kThreads) recurrence_kernel(StepView step, Recurrence a) {
  begin_dependent();
  float* const memory = dynamic_shared<float>();
  const int d = a.d;
  const int tiles = (d + kTile - 1) / kTile;
  const int64_t head = blockIdx.x / tiles % a.heads;
  const Sequence& s = step.sequence[a.first + blockIdx.x / tiles / a.heads];
  const int64_t width = a.heads * d;
  const int tile_first = blockIdx.x % tiles * kTile;
  const Tile tile = carve(memory, d);
  const KdaSlot slot(a.state, s.slot);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int e = tile_first + lane;  // this thread's value column
  const bool owns = e < d, verify = s.kind == RowKind::verify;
  const int share = (d + kWarps - 1) / kWarps;
  const int first = warp * share, last = min(d, first + share);  // this thread's keys
  float* stored = slot.state() + head * d * d;
  for (int i = first; i < last; ++i) {
    tile.s[i * kTile + lane] = owns && s.first > 0 ? stored[i * d + e] : 0.0f;
  }
  for (int32_t r = 0; r < s.rows; ++r) {
    const int64_t t = s.row + r;
    __syncthreads();  // the row before is done with the shared vectors
    load_row(a, tile, s, t, head, verify && tile_first == 0);
    __syncthreads();
    float seen = 0;
    for (int i = first; i < last; ++i) {
      float& cell = tile.s[i * kTile + lane];
      cell = decayed(cell, tile.decay[i]);
      seen = fmaf(tile.k[i], cell, seen);
    }
    tile.part[warp * kTile + lane] = seen;
    __syncthreads();
    const float v = owns ? a.qkv(t)[2 * width + head * d + e] : 0.0f;
    const float u = sigmoid(a.beta(t)[head]) * (v - sum_of_warps(tile.part, lane));
    float o = 0;
    for (int i = first; i < last; ++i) {
      float& cell = tile.s[i * kTile + lane];
      cell = updated(cell, tile.k[i], u);
      o = fmaf(tile.q[i], cell, o);
    }
    tile.part[(kWarps + warp) * kTile + lane] = o;
    __syncthreads();
    if (warp != 0 || !owns) continue;
    a.out(t)[head * d + e] = sum_of_warps(tile.part + kWarps * kTile, lane);
    if (verify) slot.pending_delta()[r * width + head * d + e] = u;
  }
  if (verify || !owns) return;
  for (int i = first; i < last; ++i) stored[i * d + e] = tile.s[i * kTile + lane];
}

// The same for heads of 128 with each thread's 32 cells of the state in registers. Same order, same bits.
constexpr int kWide = 128, kShare = kWide / kWarps;

__global__ void __launch_bounds__(kThreads) wide_kernel(StepView step, Recurrence a) {
  __shared__ __align__(16) float q[kWide], k[kWide], decay[kWide];
  __shared__ float part[2 * kWarps * kTile];
  begin_dependent();
  constexpr int kTiles = kWide / kTile;
  const int64_t head = blockIdx.x / kTiles % a.heads;
  const Sequence& s = step.sequence[a.first + blockIdx.x / kTiles / a.heads];
  const int64_t width = a.heads * kWide;
  const int tile_first = blockIdx.x % kTiles * kTile;
  const Tile tile{nullptr, q, k, decay, part};
  const KdaSlot slot(a.state, s.slot);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int e = tile_first + lane, first = warp * kShare;
  const bool verify = s.kind == RowKind::verify;
  float* stored = slot.state() + head * kWide * kWide + first * kWide + e;
  float cell[kShare];
#pragma unroll
  for (int i = 0; i < kShare; ++i) cell[i] = s.first > 0 ? stored[i * kWide] : 0.0f;
  for (int32_t r = 0; r < s.rows; ++r) {
    const int64_t t = s.row + r;
    const float v = a.qkv(t)[2 * width + head * kWide + e], beta = sigmoid(a.beta(t)[head]);
    __syncthreads();  // the row before is done with the shared vectors
    load_row(a, tile, s, t, head, verify && tile_first == 0);
    __syncthreads();
    float seen = 0;
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
      cell[i] = decayed(cell[i], decay[first + i]);
      seen = fmaf(k[first + i], cell[i], seen);
    }
    part[warp * kTile + lane] = seen;
    __syncthreads();
    const float u = beta * (v - sum_of_warps(part, lane));
    float o = 0;
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
      cell[i] = updated(cell[i], k[first + i], u);
      o = fmaf(q[first + i], cell[i], o);
    }
    part[(kWarps + warp) * kTile + lane] = o;
    __syncthreads();
    if (warp != 0) continue;
    a.out(t)[head * kWide + e] = sum_of_warps(part + kWarps * kTile, lane);
    if (verify) slot.pending_delta()[r * width + head * kWide + e] = u;
  }
  if (verify) return;
#pragma unroll
  for (int i = 0; i < kShare; ++i) stored[i * kWide] = cell[i];
}

// One thread a cell of the state.
__global__ void __launch_bounds__(kThreads)
    replay_kernel(StepView step, int32_t first, kernels::KdaReplay a) {
  begin_dependent();
  const int64_t d = a.head_dim, cells = a.heads * d * d;
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= (step.sequences - first) * cells) return;
  const Sequence& s = step.sequence[first + index / cells];
  if (s.replay == 0) return;
  const KdaSlot slot(a.state, s.slot);
  const int64_t cell = index % cells;
  const int64_t head = cell / (d * d), key = head * d + cell / d % d, column = head * d + cell % d;
  float value = s.first == s.replay ? 0.0f : slot.state()[cell];
  for (int32_t r = 0; r < s.replay; ++r) {
    const int64_t row = r * a.heads * d;
    value = decayed(value, decay_of(slot.pending_decay()[row + key]));
    value = updated(value, slot.pending_key()[row + key], slot.pending_delta()[row + column]);
  }
  slot.state()[cell] = value;
}

}  // namespace

void kda_recur(cudaStream_t stream, const StepView& step, const kernels::KdaStep& a, int32_t first,
               int32_t count) {
  if (count == 0) return;
  const int64_t heads = a.gates.beta.cols, d = a.out.cols / heads;
  const Recurrence r{rows_of<const float>(a.qkv),
                     rows_of<const float>(a.gates.forget),
                     rows_of<const float>(a.gates.beta),
                     a.gates.a_exp,
                     a.gates.dt_bias,
                     a.gates.lower_bound,
                     a.state,
                     rows_of<float>(a.out),
                     heads,
                     static_cast<int>(d),
                     first};
  const int64_t blocks = count * heads * ((d + kTile - 1) / kTile);
  if (d == kWide) {
    launch_dependent(stream, "kda_step", blocks_for(blocks, 1), kThreads, 0, wide_kernel, step, r);
    return;
  }
  launch_dependent(stream, "kda_step", blocks_for(blocks, 1), kThreads, shared_bytes(d), recurrence_kernel,
                   step, r);
}

void kda_replay(cudaStream_t stream, const StepView& step, const kernels::KdaReplay& a, int32_t first) {
  if (step.sequences == first) return;
  const int64_t cells = (step.sequences - first) * a.heads * a.head_dim * a.head_dim;
  launch_dependent(stream, "kda_replay", blocks_for(cells, kThreads), kThreads, 0, replay_kernel, step, first,
                   a);
  replay_window(stream, step, a, first);
}

}  // namespace godwit::sm90
