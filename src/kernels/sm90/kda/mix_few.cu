// kda_mix of few sequences: a cluster of four blocks has one head of a sequence, each block a quarter of its
// value columns. It prepares and walks the sequence's rows, up to eight at a time; records of an earlier
// verify are folded in before them. The blocks meet once for up to eight rows, to add the squares of o.
#include <algorithm>

#include "kernels/sm90/kda/mix.cuh"

namespace godwit::sm90::mix {
namespace {

using kernels::RowKind;
using kernels::Sequence;
using kernels::StepView;

constexpr int kMostRows = 8;                    // that are prepared together
constexpr int kChannels = 2 * kDim + kColumns;  // a block convolves: all of q and k, its own of v
constexpr int kPieces = kChannels / 4;          // a thread has four of them
constexpr int kLow = kDim + kColumns;           // low-rank outputs of a block: of f_b, then of g_b
constexpr int kForgetTiles = kDim / 8, kGateTiles = kColumns / 8;

struct Shared {
  float4 state[kCells][kThreads];         // each thread's own cells
  float4 forget[kForgetTiles][kThreads];  // f_b, each thread's own pieces
  float4 conv[kChannels];                 // taps
  float bias[kDim], norm[kColumns], a_exp[4];
  float now[kMostRows][kChannels];         // raw rows
  float low[kWarps][kMostRows][kLow + 4];  // low-rank products over the keys of a warp; [0]: then decays
  float q[kMostRows][kDim], k[kMostRows][kDim];
  float v[kMostRows][kColumns];  // then o
  float beta[kMostRows];
  float squares[2][kMostRows][kQuarters * kWarps];  // of o, of all blocks; of every other pass
  uint64_t blocks_met[2];
  Entry entry[kMostRows];

  // Behind all this: raw rows in the type of the window, the three before the first row first.
  template <class Window>
  __device__ Window* raw(int row) {
    return reinterpret_cast<Window*>(this + 1) + row * kChannels;
  }
};
template <class Window>
constexpr size_t kSharedBytes = sizeof(Shared) + size_t{kPast + kMostRows} * kChannels * sizeof(Window);
static_assert(sizeof(Shared) % 16 == 0);

__device__ inline int block_of_head() {
  return static_cast<int>(blockIdx.x % kQuarters);
}
// Where a block's piece of four channels lies in a row of 3 W.
__device__ inline int channel_of(int piece, const Mix& a, int head) {
  constexpr int kOfDim = kDim / 4;
  const int own = piece < 2 * kOfDim ? piece % kOfDim : piece % kOfDim + kColumns / 4 * block_of_head();
  return piece / kOfDim * a.width + head * kDim + 4 * own;
}
// The pieces a block writes: a quarter of q and k, and its own of v.
__device__ inline bool writes_piece(int piece) {
  return piece >= 2 * kDim / 4 || piece % (kDim / 4) / (kColumns / 4) == block_of_head();
}

// The low-rank products: a warp multiplies 32 of the keys, for all outputs; lane (g, t) has output g of tiles
// of eight, and eight keys from 8 t, of which four go into each of two steps.
struct GateWeights {
  uint4 tile[kGateTiles];
};
__device__ inline void fetch_forget_weights(Shared& m, const Mix& a, int head) {
  const int lane = threadIdx.x % 32, g = lane / 4, key = threadIdx.x / 32 * 32 + lane % 4 * 8;
  const bf16* forget = a.low[0] + (head * kDim + g) * a.low_stride[0] + key;
  float4* to = &m.forget[0][threadIdx.x];
#pragma unroll 4
  for (int j = 0; j < kForgetTiles; ++j) {
    copy_async(to, forget, true);
    to += kThreads, forget += 8 * a.low_stride[0];
  }
}
__device__ inline GateWeights load_gate_weights(const Mix& a, int head) {
  const int lane = threadIdx.x % 32, g = lane / 4, key = threadIdx.x / 32 * 32 + lane % 4 * 8;
  const bf16* gate = a.low[1] + (head * kDim + kColumns * block_of_head() + g) * a.low_stride[1] + key;
  GateWeights w;
#pragma unroll
  for (uint4& tile : w.tile) {
    tile = *reinterpret_cast<const uint4*>(gate);
    gate += 8 * a.low_stride[1];
  }
  return w;
}

struct LowInputs {
  float4 x[2][2];  // of f_b and g_b: row g % 4 of four, keys as above
};
__device__ inline LowInputs load_low_inputs(const Shared& m, const Mix& a, int first, int n) {
  const int lane = threadIdx.x % 32, key = threadIdx.x / 32 * 32 + lane % 4 * 8;
  const int64_t t = m.entry[min(first + lane / 4 % 4, n - 1)].t;
  LowInputs in;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    in.x[0][half] = *reinterpret_cast<const float4*>(a.low_forget(t) + key + 4 * half);
    in.x[1][half] = *reinterpret_cast<const float4*>(a.low_gate(t) + key + 4 * half);
  }
  return in;
}
__device__ inline void multiply_low(Shared& m, const GateWeights& w, const LowInputs& in, int first, int n) {
  const int lane = threadIdx.x % 32, g = lane / 4, r = first + g;
  uint32_t x[2][2][4];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) cut_four(in.x[i][half], g < 4, x[i][half]);
  }
  float* to = &m.low[threadIdx.x / 32][r][lane % 4 * 2];
  const float4* forget = &m.forget[0][threadIdx.x];
  // Many at once: a warp meets no other that could hide how long one takes.
  constexpr int kAtOnce = 10;
#pragma unroll
  for (int tiles = 0; tiles < kForgetTiles + kGateTiles; tiles += kAtOnce) {
    float sums[kAtOnce][4] = {}, third[kAtOnce][2];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int j = tiles + i;
      uint4 v;
      if (j < kForgetTiles) {
        v = *reinterpret_cast<const uint4*>(forget + j * kThreads);
      } else {
        v = w.tile[j - kForgetTiles];
      }
      const auto& rows = x[j < kForgetTiles ? 0 : 1];
      mma_bf16(sums[i], rows[0], v.x, v.y);
      mma_bf16(sums[i], rows[1], v.z, v.w);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) third[i][e] = __shfl_xor_sync(0xffffffffu, sums[i][e], 16);
    }
    if (g >= 4 || r >= n) continue;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      *reinterpret_cast<float2*>(to + 8 * (tiles + i)) =
          float2{sum_of_parts(sums[i], 0, third[i][0]), sum_of_parts(sums[i], 1, third[i][1])};
    }
  }
}
__device__ inline float sum_of_warps(const Shared& m, int r, int c) {
  return sum_of_four(m.low[0][r][c], m.low[1][r][c], m.low[2][r][c], m.low[3][r][c]);
}

__device__ inline void copy_four(float* to, const float* from, bool present) {
  copy_async(to, from, present);
}
__device__ inline void copy_four(bf16* to, const bf16* from, bool present) {
  copy_half_async(to, from, present);
}

// The rows before row 0: the last records, and before them the window.
template <class Window>
__device__ void fetch_past(Shared& m, const Mix& a, int head, const Sequence& s) {
  const int piece = threadIdx.x, channel = channel_of(piece, a, head);
  const KdaSlot slot(a.state, s.slot);
#pragma unroll 1
  for (int i = 0; i < kPast; ++i) {
    const int record = i + s.replay - kPast;
    const auto* from = static_cast<const Window*>(record >= 0 ? slot.pending_raw() : slot.window()) +
                       (record >= 0 ? record : kPast + record) * 3 * a.width + channel;
    copy_four(m.raw<Window>(i) + 4 * piece, from, record >= 0 || s.first != s.replay);
  }
}
// The rows themselves, in the type of the window; this thread has copied its piece of them.
template <class Window>
__device__ void round_rows(Shared& m, const Mix& a, int head, int n) {
  const int piece = threadIdx.x;
#pragma unroll 1
  for (int r = 0; r < n; ++r) {
    float v[4];
    load_four<true>(&m.now[r][4 * piece], 0, 4, v);
    store_four(m.raw<Window>(r + kPast) + 4 * piece, v);
    const Entry& entry = m.entry[r];
    if (entry.keeps && writes_piece(piece)) {
      store_four(static_cast<Window*>(KdaSlot(a.state, entry.slot).pending_raw()) + entry.base * 3 * a.width +
                     channel_of(piece, a, head),
                 v);
    }
  }
}
// The window, from raw row `first` on.
template <class Window>
__device__ inline void save_window(Shared& m, const Mix& a, int head, int32_t slot, int first) {
  const int piece = threadIdx.x;
  if (piece >= kPieces || !writes_piece(piece)) return;
  auto* to = static_cast<Window*>(KdaSlot(a.state, slot).window()) + channel_of(piece, a, head);
#pragma unroll
  for (int i = 0; i < kPast; ++i) {
    float v[4];
    load_four<true>(m.raw<Window>(first + i) + 4 * piece, 0, 4, v);
    store_four(to + i * 3 * a.width, v);
  }
}

// Of n rows, two pieces of four channels at a time.
template <class Window>
__device__ void convolve(Shared& m, int n) {
#pragma unroll 1
  for (int at = static_cast<int>(threadIdx.x); at < n * kPieces; at += 2 * kThreads) {
    float x[2][kTaps][4];
    int row[2], channel[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int item = i == 0 || at + kThreads >= n * kPieces ? at : at + kThreads;
      row[i] = item / kPieces, channel[i] = item % kPieces * 4;
      const Window* from = m.raw<Window>(row[i]) + channel[i];
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) load_four<true>(from + tap * kChannels, 0, 4, x[i][tap]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int r = row[i], c = channel[i];
      float y[4];
      convolve_four(x[i], &m.conv[c], y);
      store_four(c < kDim ? &m.q[r][c] : c < 2 * kDim ? &m.k[r][c - kDim] : &m.v[r][c - 2 * kDim], y);
    }
  }
}

// Of n rows, two at a time.
__device__ void make_decays(Shared& m, const Mix& a, int head, int n) {
  const int c = threadIdx.x;
#pragma unroll 1
  for (int r = 0; r < n; r += 2) {
    float g[2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      g[i] = log_decay(a, m.a_exp[0], sum_of_warps(m, min(r + i, n - 1), c), m.bias[c]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int own = min(r + i, n - 1);
      m.low[0][own][c] = decay_of(g[i]);
      const Entry& entry = m.entry[own];
      if (entry.keeps && c / kColumns == block_of_head()) {
        KdaSlot(a.state, entry.slot).pending_decay()[entry.base * a.width + head * kDim + c] = g[i];
      }
    }
  }
}

__device__ inline float* cells_of(const Mix& a, int32_t slot, int head) {
  return KdaSlot(a.state, slot).state() + head * kDim * kDim + kColumns * block_of_head() + first_cell();
}
__device__ inline void load_cells(Lane& lane, const Shared& m) {
#pragma unroll
  for (int i = 0; i < kCells; ++i) lane.set(i, m.state[i][threadIdx.x]);
}
__device__ inline void store_cells(const Lane& lane, Shared& m) {
#pragma unroll
  for (int i = 0; i < kCells; ++i) m.state[i][threadIdx.x] = lane.get(i);
}
__device__ inline void save_cells(const Lane& lane, float* to) {
#pragma unroll
  for (int i = 0; i < kCells; ++i) *reinterpret_cast<float4*>(to + cell_at(i)) = lane.get(i);
}

// Folds `all` records into the state.
__device__ void fold(Shared& m, const Mix& a, int head, int32_t slot_index, int all) {
  const KdaSlot slot(a.state, slot_index);
  const int thread = threadIdx.x, lane = thread % 32, c = 4 * lane;
  const int first_column = head * kDim + (thread < 64 ? 0 : kColumns * block_of_head());
  const float* from = (thread < 32   ? slot.pending_key()
                       : thread < 64 ? slot.pending_decay()
                                     : slot.pending_delta()) +
                      first_column + c;
  float* to = thread < 32 ? &m.k[0][c] : thread < 64 ? &m.low[0][0][c] : &m.v[0][c];
  const int pitch = thread < 32 ? kDim : thread < 64 ? kLow + 4 : kColumns;
  Lane own;
  load_cells(own, m);
#pragma unroll 1
  for (int first = 0; first < all; first += kMostRows) {
    const int n = min(kMostRows, all - first);
    __syncthreads();
    if (thread < kPieces) {
#pragma unroll 1
      for (int r = 0; r < n; ++r) copy_async(to + r * pitch, from + (first + r) * a.width, true);
    }
    commit_copies();
    wait_copies<0>();
    __syncthreads();
#pragma unroll 1
    for (int r = 0; r < n; ++r) m.low[0][r][thread] = decay_of(m.low[0][r][thread]);
    __syncthreads();
#pragma unroll 1
    for (int r = 0; r < n; ++r) {
      own.u = four(&m.v[r][8 * (thread / 32) + 4 * (lane % 2)]);
#pragma unroll
      for (int i = 0; i < 2; ++i) own.see(m.k[r], m.low[0][r], i);
      own.update();
    }
  }
  store_cells(own, m);
}

// Norm and gate of the rows, once all blocks have their squares: a warp finishes its own columns, a lane four
// of a row.
__device__ inline void finish(Shared& m, const Mix& a, int head, int n, int buffer, uint32_t parity) {
  const int lane = threadIdx.x % 32, r = lane / 2, c = 8 * (threadIdx.x / 32) + 4 * (lane % 2);
  float v[4];
  __syncwarp();
  if (r < n) {
    const Column4 o = four(&m.v[r][c]), w = four(&m.norm[c]);
#pragma unroll
    for (int e = 0; e < 4; ++e) v[e] = gated(o.v[e], w.v[e], fast_sigmoid(sum_of_warps(m, r, kDim + c + e)));
  }
  mbarrier_wait(&m.blocks_met[buffer], parity);
  if (r >= n) return;
  float squares[kQuarters];
#pragma unroll
  for (int b = 0; b < kQuarters; ++b) {
    const Column4 w = four(&m.squares[buffer][r][kWarps * b]);
    squares[b] = sum_of_four(w.v[0], w.v[1], w.v[2], w.v[3]);
  }
  const float scale = norm_scale(a, sum_of_four(squares[0], squares[1], squares[2], squares[3]));
  a.out.put(m.entry[r].t, head * kDim + kColumns * block_of_head() + c,
            float4{v[0] * scale, v[1] * scale, v[2] * scale, v[3] * scale});
}

template <class Window>
__global__ void __launch_bounds__(kThreads, 3) few_kernel(StepView step, const __grid_constant__ Mix a) {
  let_next_start();
  Shared& m = *dynamic_shared<Shared>();
  const unsigned heads = static_cast<unsigned>(a.heads), sequence = blockIdx.x / kQuarters / heads;
  const int head = static_cast<int>(blockIdx.x / kQuarters - sequence * heads), thread = threadIdx.x;
  const Sequence& s = step.sequence[sequence];
  const bool verify = s.kind == RowKind::verify;
  const int folds = s.replay, all = s.rows;
  // Constants, and what only the step before has written.
  fetch_forget_weights(m, a, head);
  GateWeights weights = load_gate_weights(a, head);
  if (thread < kPieces) {
    const float* taps = a.conv + channel_of(thread, a, head) * kTaps;
#pragma unroll
    for (int i = 0; i < 4; ++i) copy_async(&m.conv[4 * thread + i], taps + i * kTaps, true);
    fetch_past<Window>(m, a, head, s);
  } else if (thread >= kThreads - 32) {
    const int c = 4 * (thread % 32);
    copy_async(&m.bias[c], a.dt_bias + head * kDim + c, true);
    if (c == 0) copy_word_async(m.a_exp, a.a_exp + head);
    if (c < kColumns) copy_async(&m.norm[c], a.norm + kColumns * block_of_head() + c, true);
  }
  {
    const float* from = cells_of(a, s.slot, head);
#pragma unroll
    for (int i = 0; i < kCells; ++i) copy_async(&m.state[i][thread], from + cell_at(i), s.first != s.replay);
    commit_copies();
  }
  if (thread == 0) {
    for (uint64_t& barrier : m.blocks_met) mbarrier_init(&barrier, 1);
    mbarrier_init_done();
  }
  if (folds > 0) {
    wait_copies<0>();
    fold(m, a, head, s.slot, folds);
  }
#pragma unroll 1
  for (int first = 0, pass = 0; first < all; first += kMostRows, ++pass) {
    const int n = min(kMostRows, all - first), buffer = pass % 2;
    __syncthreads();  // the rows before are done with shared memory
    if (thread < n) m.entry[thread] = entry_of(s, first + thread);
    __syncthreads();
    if (pass == 0) {
      arrive_at_cluster();
      wait_for_previous();
      wait_for_cluster();  // records and windows have been read
      if (verify && folds > 0) {
        save_window<Window>(m, a, head, s.slot, 0);
        Lane own;
        load_cells(own, m);
        save_cells(own, cells_of(a, s.slot, head));
      }
    } else {
      weights = load_gate_weights(a, head);
      if (thread < kPieces) {
#pragma unroll
        for (int i = 0; i < kPast; ++i) {
          float v[4];
          load_four<true>(m.raw<Window>(kMostRows + i) + 4 * thread, 0, 4, v);
          store_four(m.raw<Window>(i) + 4 * thread, v);
        }
      }
    }
    if (thread < kPieces) {
      const int channel = channel_of(thread, a, head);
#pragma unroll 1
      for (int r = 0; r < n; ++r) copy_async(&m.now[r][4 * thread], a.raw(m.entry[r].t) + channel, true);
    }
    commit_copies();
    LowInputs inputs = load_low_inputs(m, a, 0, n), more = load_low_inputs(m, a, 4, n);
    if (thread >= kThreads - kMostRows && thread - (kThreads - kMostRows) < n) {
      const int r = thread - (kThreads - kMostRows);
      m.beta[r] = fast_sigmoid(a.beta(m.entry[r].t)[head]);
    }
    wait_copies<0>();
    if (thread < kPieces) round_rows<Window>(m, a, head, n);
    __syncthreads();
#pragma unroll 1
    for (int at = 0; at < n; at += 4) {
      multiply_low(m, weights, inputs, at, n);
      inputs = more;
    }
    convolve<Window>(m, n);
    __syncthreads();
    make_decays(m, a, head, n);
    __syncthreads();
    if (thread == 0) mbarrier_arrive_expecting(&m.blocks_met[buffer], n * kQuarters * kWarps * sizeof(float));
    Lane own;
    load_cells(own, m);
#pragma unroll 1
    for (int r = 0; r < n; ++r) {
      const WalkRow row{m.q[r], m.k[r], m.low[0][r], m.v[r], m.beta[r], nullptr, nullptr};
      const float squares = squares_of_eight(look<false>(a, own, row, m.entry[r], head, block_of_head()));
      const int lane = thread % 32;
      if (lane >= 16 && lane < 16 + kQuarters) {
        store_async_at(&m.squares[buffer][r][kWarps * block_of_head() + thread / 32],
                       static_cast<uint32_t>(lane - 16), squares, &m.blocks_met[buffer]);
      }
      own.update();
    }
    const bool last = n == all - first;
    if (!last) {
      store_cells(own, m);
    } else if (!verify) {
      save_cells(own, cells_of(a, s.slot, head));
    }
    finish(m, a, head, n, buffer, pass / 2 % 2);
    if (last && !verify) save_window<Window>(m, a, head, s.slot, n);
  }
}

template <class Window>
void launch(cudaStream_t stream, const StepView& step, const Mix& a) {
  static const bool sized = [] {
    check(cudaFuncSetAttribute(few_kernel<Window>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(kSharedBytes<Window>)),
          "kda_mix");
    return true;
  }();
  static_cast<void>(sized);
  launch_clusters(stream, "kda_mix", kQuarters,
                  blocks_for(int64_t{step.decode_sequences} * a.heads * kQuarters, 1), kThreads,
                  kSharedBytes<Window>, few_kernel<Window>, step, a);
}

}  // namespace

void launch_few(cudaStream_t stream, const StepView& step, const Mix& a, DType window) {
  if (window == DType::bf16) return launch<bf16>(stream, step, a);
  launch<float>(stream, step, a);
}

}  // namespace godwit::sm90::mix
