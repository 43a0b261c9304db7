// kda_mix of many sequences: a block has one head of several sequences, one after the other, sixteen warps on
// its four quarters. States come and go by bulk copies: two are on their way while one is walked in place.
// Sequences of one row are prepared together, up to four; others by themselves, up to four rows at a time,
// behind the records that are folded in.
#include "kernels/sm90/kda/mix.cuh"

namespace godwit::sm90::mix {
namespace {

using kernels::RowKind;
using kernels::Sequence;
using kernels::StepView;

constexpr int kBlockThreads = kQuarters * kThreads, kBlockWarps = kBlockThreads / 32;
constexpr int kStages = 3;         // states in shared memory
constexpr int kSteps = kDim / 16;  // of a low-rank product
constexpr int kRows = 4;           // that are prepared together: of one product of tensor cores
constexpr int kChannels = 3 * kDim, kPieces = kChannels / 4;
// Four keys of a state, a bulk copy, and what keeps lanes of different keys in different banks.
constexpr int kPart = 4 * kDim, kPartPitch = kPart + 8, kParts = kDim * kDim / kPart;
static_assert(kParts == 32);  // a lane's

// What a block does between two of its barriers: prepares and walks n rows of as many sequences from e on, or
// n records or rows of sequence e. `first` of its `all` records and rows are done by then.
struct Turn {
  int32_t e, n, first, all;
  bool single, folding;
};

using Rows = float[kRows][kDim];
struct Shared {
  float state[kStages][kParts * kPartPitch];
  uint4 inputs[2 * kSteps][32];  // of the low-rank products
  Rows q, k, kd;
  Rows low[2];                   // of the low-rank products: decays, and sigmoids of the output gate
  Rows v;                        // then o
  float past[kPast][kChannels];  // raw rows before row 0, unless sequences are prepared together
  float4 taps[kChannels];
  float norm[kDim];
  float beta[kRows];
  Scales scales[kRows];
  Entry entry[kRows];
  Turn turn;
  uint64_t full[kStages], walked[kStages];  // a state has come; its last reader and writer is done
};
static_assert(sizeof(Shared) <= 227 << 10);

__device__ inline int quarter() {
  return static_cast<int>(threadIdx.x) / kThreads;
}
__device__ inline bool is_single(const Sequence& s) {
  return s.rows == 1 && s.replay == 0;
}
// Whether the state is another after the step: of a verify, only by what is folded in.
__device__ inline bool moves(const Sequence& s) {
  return s.kind != RowKind::verify || s.replay > 0;
}
__device__ inline float* state_of(const Mix& a, int32_t slot, int head) {
  return KdaSlot(a.state, slot).state() + head * kDim * kDim;
}

// A warp's parts of a state: of each, its first lanes one. When all warps have left the state before, it goes
// back; when its place has been read, the next but two takes it.
__device__ inline bool has_part() {
  return static_cast<int>(threadIdx.x) % 32 < kParts / kBlockWarps;
}
__device__ inline int own_part() {
  const int thread = static_cast<int>(threadIdx.x);
  return thread / 32 * (kParts / kBlockWarps) + thread % 32;
}
__device__ inline void fetch(Shared& m, const Mix& a, const Sequence* sequence, int count, int e, int head) {
  if (e >= count) return;
  const Sequence& s = sequence[e];
  uint64_t* const full = &m.full[e % kStages];
  const bool fresh = s.first == s.replay;
  if (threadIdx.x == 0) mbarrier_arrive_expecting(full, fresh ? 0 : kDim * kDim * sizeof(float));
  if (fresh || !has_part()) return;
  copy_bulk(&m.state[e % kStages][own_part() * kPartPitch], state_of(a, s.slot, head) + own_part() * kPart,
            kPart * sizeof(float), full);
}
__device__ inline void save(Shared& m, const Mix& a, const Sequence& s, int e, int head) {
  if (!has_part()) return;
  mbarrier_wait(&m.walked[e % kStages], e / kStages % 2);
  if (!moves(s)) return;
  copy_bulk_out(state_of(a, s.slot, head) + own_part() * kPart,
                &m.state[e % kStages][own_part() * kPartPitch], kPart * sizeof(float));
  commit_bulk_out();
}

// The low-rank products: a warp has sixteen outputs of f_b or of g_b, two tiles of eight; lane (g, t) of each
// quarter of K eight keys from 8 t of output g, of which four go into each of two steps.
struct LowWeights {
  uint4 tile[2][kQuarters];
};
__device__ inline int low_half_of_warp() {
  return static_cast<int>(threadIdx.x) / (kBlockThreads / 2);
}
__device__ inline int low_outputs() {
  return static_cast<int>(threadIdx.x) / 32 % (kBlockThreads / 64) * 16;
}
__device__ inline LowWeights load_low_weights(const Mix& a, int head) {
  const int lane = static_cast<int>(threadIdx.x) % 32, half = low_half_of_warp();
  const bf16* from =
      a.low[half] + (head * kDim + low_outputs() + lane / 4) * a.low_stride[half] + lane % 4 * 8;
  LowWeights w;
#pragma unroll
  for (auto& tile : w.tile) {
#pragma unroll
    for (int p = 0; p < kQuarters; ++p) tile[p] = *reinterpret_cast<const uint4*>(from + 32 * p);
    from += 8 * a.low_stride[half];
  }
  return w;
}
// The inputs as operands of mma, of which a warp cuts one: of f_b or of g_b, of one of two steps of a
// quarter.
__device__ inline void cut_inputs(Shared& m, const Mix& a, int n) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, step = warp % kSteps;
  const int64_t t = m.entry[min(lane / 4 % 4, n - 1)].t;
  const float* from =
      (warp < kSteps ? a.low_forget(t) : a.low_gate(t)) + step / 2 * 32 + lane % 4 * 8 + step % 2 * 4;
  uint32_t rows[4];
  cut_four(*reinterpret_cast<const float4*>(from), lane / 4 < 4, rows);
  m.inputs[warp][lane] = uint4{rows[0], rows[1], rows[2], rows[3]};
}
// Decays, and the gates' sigmoids.
__device__ void multiply_low(Shared& m, const Mix& a, const LowWeights& w, int head, float a_exp, float bias,
                             int n) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, half = low_half_of_warp();
  float low[kQuarters][2][2];
#pragma unroll
  for (int p = 0; p < kQuarters; ++p) {
    __syncwarp();
    uint32_t rows[2][4];
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const uint4 v = m.inputs[half * kSteps + 2 * p + step][lane];
      rows[step][0] = v.x, rows[step][1] = v.y, rows[step][2] = v.z, rows[step][3] = v.w;
    }
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      const uint4& v = w.tile[tile][p];
      float sums[4] = {};
      mma_bf16(sums, rows[0], v.x, v.y);
      mma_bf16(sums, rows[1], v.z, v.w);
#pragma unroll
      for (int e = 0; e < 2; ++e)
        low[p][tile][e] = sum_of_parts(sums, e, __shfl_xor_sync(0xffffffffu, sums[e], 16));
    }
  }
  Rows& to = m.low[half];
  const int at = low_outputs();
  if (g < 4) {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      float sum[2];
#pragma unroll
      for (int e = 0; e < 2; ++e)
        sum[e] = sum_of_four(low[0][tile][e], low[1][tile][e], low[2][tile][e], low[3][tile][e]);
      *reinterpret_cast<float2*>(&to[g][at + 8 * tile + lane % 4 * 2]) = float2{sum[0], sum[1]};
    }
  }
  __syncwarp();
  const int c = at + lane % 16;
#pragma unroll 1
  for (int r = lane / 16; r < n; r += 2) {
    float v = to[r][c];
    if (half == 0) {
      v = log_decay(a, a_exp, v, bias);
      const Entry& entry = m.entry[r];
      if (entry.keeps)
        KdaSlot(a.state, entry.slot).pending_decay()[entry.base * a.width + head * kDim + c] = v;
      v = decay_of(v);
    } else {
      v = fast_sigmoid(v);
    }
    to[r][c] = v;
  }
}

// The row and the piece of four channels that a thread convolves, if the row is there.
struct Own {
  int piece, row;

  __device__ explicit Own(int thread) : piece(thread % kPieces), row(thread / kPieces) {}
  __device__ int channel(const Mix& a, int head) const {
    return piece / (kDim / 4) * a.width + head * kDim + piece % (kDim / 4) * 4;
  }
  __device__ float* place(Shared& m) const {
    return (piece < kDim / 4 ? m.q : piece < 2 * kDim / 4 ? m.k : m.v)[row] + piece % (kDim / 4) * 4;
  }
};

// Row i of the three before row 0: one of the last records, or before them of the window.
template <class Window>
__device__ inline void load_before(const Mix& a, int32_t slot_index, bool fresh, int replay, int i,
                                   int channel, float (&v)[4]) {
  const KdaSlot slot(a.state, slot_index);
  const int record = i + replay - kPast;
  const auto* from = static_cast<const Window*>(record >= 0 ? slot.pending_raw() : slot.window()) +
                     (record >= 0 ? record : kPast + record) * 3 * a.width + channel;
#pragma unroll
  for (float& e : v) e = 0;
  if (record >= 0 || !fresh) load_four<true>(from, 0, 4, v);
}

// Four values in the type of the window, as they lie in memory.
template <class Window>
struct alignas(4 * sizeof(Window)) Four {
  Window v[4];
};
// The rows before a row.
template <class Window>
struct Past {
  Four<Window> row[kPast];

  __device__ void load(const Window* from, bool present, int width) {
#pragma unroll
    for (int i = 0; i < kPast; ++i) {
      row[i] = {};
      if (present) row[i] = *reinterpret_cast<const Four<Window>*>(from + i * 3 * width);
    }
  }
};

// Conv of a row, whose raw values this thread has in their places, and what is left for the next step: the
// window, or a verify's records.
template <class Window>
__device__ void convolve(Shared& m, const Mix& a, const Own& own, Past<Window>& past, int head, bool single) {
  const int channel = own.channel(a, head);
  const Entry& entry = m.entry[own.row];
  const KdaSlot slot(a.state, entry.slot);
  auto* const window = static_cast<Window*>(slot.window()) + channel;
  if (!single) {
#pragma unroll
    for (int tap = 0; tap < kPast; ++tap) {
      const int row = entry.base - kPast + tap;
      float v[4];
      load_four<true>(row < 0 ? &m.past[kPast + row][4 * own.piece] : a.raw(entry.t - kPast + tap) + channel,
                      0, 4, v);
      store_four(past.row[tap].v, v);
    }
  }
  float* const at = own.place(m);
  float x[kTaps][4], y[4];
  Four<Window> now;
  load_four<true>(at, 0, 4, x[kPast]);
  store_four(now.v, x[kPast]);
  load_four<true>(now.v, 0, 4, x[kPast]);
#pragma unroll
  for (int tap = 0; tap < kPast; ++tap) load_four<true>(past.row[tap].v, 0, 4, x[tap]);
  convolve_four(x, &m.taps[4 * own.piece], y);
  store_four(at, y);
  if (entry.keeps) {
    *reinterpret_cast<Four<Window>*>(static_cast<Window*>(slot.pending_raw()) + entry.base * 3 * a.width +
                                     channel) = now;
  }
  if (!entry.moves_window) return;
#pragma unroll
  for (int i = 0; i < kPast; ++i) {
    *reinterpret_cast<Four<Window>*>(window + i * 3 * a.width) = entry.keeps     ? past.row[i]
                                                                 : i + 1 < kPast ? past.row[(i + 1) % kPast]
                                                                                 : now;
  }
}

// A record as a row of the walk.
__device__ void load_record(Shared& m, const Mix& a, const Own& own, const KdaSlot& slot, int head,
                            int record) {
  const int kind = own.piece / (kDim / 4), c = own.piece % (kDim / 4) * 4;
  const float* from = (kind == 0   ? slot.pending_key()
                       : kind == 1 ? slot.pending_decay()
                                   : slot.pending_delta()) +
                      record * a.width + head * kDim + c;
  float v[4];
  load_four<true>(from, 0, 4, v);
  if (kind == 1) {
#pragma unroll
    for (float& e : v) e = decay_of(e);
  }
  store_four((kind == 0 ? m.k : kind == 1 ? m.low[0] : m.v)[own.row] + c, v);
}

// What the walk asks of q and k of a row, by a warp that has keys as a warp of the walk has them.
__device__ inline void normalise(Shared& m, const Mix& a, int head, int r) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float products[3] = {};
  Column4 q[2], k[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int at = 64 * i + lane / 2 * 4;
    q[i] = four(m.q[r] + at), k[i] = four(m.k[r] + at);
    add_products(q[i], k[i], products);
  }
#pragma unroll
  for (int offset = 16; offset > 1; offset /= 2) {
#pragma unroll
    for (float& product : products) product += __shfl_xor_sync(0xffffffffu, product, offset);
  }
  const Scales scales = scales_of(products);
  if (lane == 0) m.scales[r] = scales;
  if (lane % 2 != 0) return;
  const Entry& entry = m.entry[r];
  float* const record = KdaSlot(a.state, entry.slot).pending_key() + entry.base * a.width + head * kDim;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int at = 64 * i + lane / 2 * 4;
    const Column4 d = four(m.low[0][r] + at), unit = times(k[i], scales.k);
    store_four(m.q[r] + at, times(q[i], d).v);
    store_four(m.kd[r] + at, times(k[i], d).v);
    store_four(m.k[r] + at, unit.v);
    if (entry.keeps) store_four(record + at, unit.v);
  }
}

// Norm and gate of a row, by a warp; its squares are added in the order of squares_of_eight() and mix_few.cu.
__device__ inline void finish(const Shared& m, const Mix& a, int head, int r) {
  const int lane = static_cast<int>(threadIdx.x) % 32, c = 4 * lane;
  const Column4 o = four(&m.v[r][c]), w = four(&m.norm[c]), gate = four(&m.low[1][r][c]);
  float squares[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    squares[e] = o.v[e] * o.v[e];
    squares[e] += __shfl_xor_sync(0xffffffffu, squares[e], 1);
  }
  float sum = sum_of_four(squares[0], squares[1], squares[2], squares[3]);
#pragma unroll
  for (int offset = 2; offset < 32; offset *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  const float scale = norm_scale(a, sum);
  float v[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) v[e] = gated(o.v[e], w.v[e], gate.v[e]) * scale;
  a.out.put(m.entry[r].t, head * kDim + c, float4{v[0], v[1], v[2], v[3]});
}

// A lane's cells of the state in a stage.
__device__ inline const float* cells_of(const Shared& m, int e) {
  const int at = first_cell();
  return m.state[e % kStages] + at / kPart * kPartPitch + at % kPart + kColumns * quarter();
}
__device__ inline int cell_in_stage(int i) {
  return i / 4 * (64 / 4) * kPartPitch + i % 4 * kDim;
}
__device__ inline void load_cells(const Shared& m, Lane& own, int e, bool fresh) {
  const float* from = cells_of(m, e);
#pragma unroll
  for (int i = 0; i < kCells; ++i) {
    own.set(i, fresh ? float4{} : *reinterpret_cast<const float4*>(from + cell_in_stage(i)));
  }
}
__device__ inline void store_cells(Shared& m, const Lane& own, int e) {
  float* to = const_cast<float*>(cells_of(m, e));
#pragma unroll
  for (int i = 0; i < kCells; ++i) *reinterpret_cast<float4*>(to + cell_in_stage(i)) = own.get(i);
}
// This warp is done with a stage.
__device__ inline void leave(Shared& m, int e) {
  fence_products();
  __syncwarp();
  if (threadIdx.x % 32 == 0) mbarrier_arrive(&m.walked[e % kStages]);
}

// The turn behind m.turn, by a warp.
__device__ inline void next_turn(Shared& m, const Sequence* sequence, int count) {
  const int lane = threadIdx.x % 32;
  Turn t = m.turn;
  t.first += t.n;
  if (t.first == t.all) t.e += t.single ? t.n : 1, t.first = 0;
  const Sequence& s = sequence[t.e];
  const Sequence& own = sequence[min(t.e + lane % kRows, count - 1)];
  const unsigned singles = __ballot_sync(0xffffffffu, lane < kRows && t.e + lane < count && is_single(own));
  t.single = is_single(s);
  t.folding = t.first < s.replay;
  t.all = t.single ? __popc(singles & ~(singles + 1)) : s.replay + s.rows;  // its lowest ones
  t.n = min(kRows, (t.folding ? s.replay : t.all) - t.first);
  if (lane < t.n)
    m.entry[lane] = t.single ? entry_of(own, 0) : entry_of(s, t.first - (t.folding ? 0 : s.replay) + lane);
  __syncwarp();
  if (lane == 0) m.turn = t;
}

template <class Window>
__global__ void __launch_bounds__(kBlockThreads, 1)
    many_kernel(StepView step, const __grid_constant__ Mix a, int32_t group) {
  let_next_start();
  Shared& m = *dynamic_shared<Shared>();
  const unsigned heads = static_cast<unsigned>(a.heads), block = blockIdx.x / heads;
  const int head = static_cast<int>(blockIdx.x - block * heads);
  const Sequence* const sequence = step.sequence + static_cast<int>(block) * group;
  const int count = min(group, step.decode_sequences - static_cast<int>(block) * group);
  const int thread = threadIdx.x;
  // Weights before states, behind which they would wait.
  prefetch(a.low[low_half_of_warp()] +
           (head * kDim + low_outputs() + thread % 32 / 2) * a.low_stride[low_half_of_warp()] +
           thread % 2 * (kDim / 2));
  if (thread < kChannels) {
    copy_async(&m.taps[thread], a.conv + (thread / kDim * a.width + head * kDim + thread % kDim) * kTaps);
  } else if (thread < kChannels + kDim / 4) {
    copy_async(&m.norm[4 * (thread - kChannels)], a.norm + 4 * (thread - kChannels));
  }
  if (thread == 0) {
    for (uint64_t& barrier : m.full) mbarrier_init(&barrier, 1);
    for (uint64_t& barrier : m.walked) mbarrier_init(&barrier, kBlockWarps);
    mbarrier_init_done();
    m.turn = {0, 0, 0, 1, false, false};
  }
  int fetched = 0, saved = 0;
  const Turn& turn = m.turn;
#pragma unroll 1
  for (bool last = false; !last;) {
    __syncthreads();  // the rows before are done with shared memory
    if (fetched == 0) fetch(m, a, sequence, count, fetched++, head);
    if (threadIdx.x < 32) next_turn(m, sequence, count);
    __syncthreads();
    const int n = turn.n;
    const Sequence& s = sequence[turn.e];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const Own own(threadIdx.x);
    if (!turn.single && turn.first == 0 && own.row < kPast) {
      float v[4];
      load_before<Window>(a, s.slot, s.first == s.replay, s.replay, own.row, own.channel(a, head), v);
      store_four(&m.past[own.row][4 * own.piece], v);
    }
    if (turn.folding) {
      if (own.row < n) load_record(m, a, own, KdaSlot(a.state, s.slot), head, turn.first + own.row);
    } else {
      const LowWeights weights = load_low_weights(a, head);
      const float a_exp = a.a_exp[head], bias = a.dt_bias[head * kDim + low_outputs() + lane % 16];
      Past<Window> past;
      if (turn.single && own.row < n) {
        const Entry& entry = m.entry[own.row];
        past.load(static_cast<const Window*>(KdaSlot(a.state, entry.slot).window()) + own.channel(a, head),
                  !entry.fresh, a.width);
      }
      wait_for_previous();
      if (own.row < n) copy_async(own.place(m), a.raw(m.entry[own.row].t) + own.channel(a, head));
      commit_copies();
      if (warp == kBlockWarps - 1 && lane < n)  // it has nothing to convolve
        m.beta[lane] = fast_sigmoid(a.beta(m.entry[lane].t)[head]);
      cut_inputs(m, a, n);
      // The other first states, behind all that the first rows need.
#pragma unroll 1
      for (; fetched < kStages; ++fetched) fetch(m, a, sequence, count, fetched, head);
      wait_copies<0>();
      __syncthreads();
      multiply_low(m, a, weights, head, a_exp, bias, n);
      if (own.row < n) convolve(m, a, own, past, head, turn.single);
      // What is folded in is saved before rows change it that are not.
      if (m.entry[0].keeps && s.replay > 0 && saved == turn.e) {
        save(m, a, s, saved++, head);
        wait_bulk_read<0>();
      }
    }
    __syncthreads();
    if (!turn.folding) {
      if (warp < n) normalise(m, a, head, warp);
      __syncthreads();
    }
    Lane cells;
#pragma unroll 1
    for (int r = 0; r < n; ++r) {
      const Entry& entry = m.entry[r];
      const int e = turn.single ? turn.e + r : turn.e;
      const bool enters = turn.single || turn.first + r == 0;
      if (turn.single || r == 0) {
        mbarrier_wait(&m.full[e % kStages], e / kStages % 2);
        load_cells(m, cells, e, entry.fresh && enters);
      }
      if (enters && saved < e) save(m, a, sequence[saved], saved, head), ++saved;
      const WalkRow row{m.q[r],    m.k[r],  m.low[0][r], m.v[r] + kColumns * quarter(),
                        m.beta[r], m.kd[r], &m.scales[r]};
      if (turn.folding) {
        cells.u = four(row.v + warp % kWarps * 8 + lane % 2 * 4);
#pragma unroll
        for (int i = 0; i < 2; ++i) cells.see(row.k, row.d, i);
      } else {
        look<true>(a, cells, row, entry, head, quarter());
      }
      cells.update();
      if (turn.single || r + 1 == n) {
        const int done = turn.first + n;
        const bool leaves = turn.single || done == (entry.keeps && s.replay > 0 ? s.replay : turn.all);
        if (!entry.keeps || (!turn.single && done < turn.all)) {
          store_cells(m, cells, e);
          if (!leaves) fence_products();  // a bulk copy may come to its place
        }
        if (leaves) leave(m, e);
      }
      if (enters && e > 0) {
        wait_bulk_read<0>();
        fetch(m, a, sequence, count, e - 1 + kStages, head);
      }
    }
    if (turn.folding) continue;
    last = turn.e + (turn.single ? n : 1) == count && turn.first + n == turn.all;
    if (last && saved < count) save(m, a, sequence[saved], saved, head);
    __syncthreads();
    if (warp < n) finish(m, a, head, warp);
  }
  wait_bulk_read<0>();
}

template <class Window>
void launch(cudaStream_t stream, const StepView& step, const Mix& a, int32_t group) {
  static const bool sized = [] {
    check(cudaFuncSetAttribute(many_kernel<Window>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(sizeof(Shared))),
          "kda_mix");
    return true;
  }();
  static_cast<void>(sized);
  const int64_t groups = (step.decode_sequences + group - 1) / group;
  launch_dependent(stream, "kda_mix", blocks_for(groups * a.heads, 1), kBlockThreads, sizeof(Shared),
                   many_kernel<Window>, step, a, group);
}

}  // namespace

void launch_many(cudaStream_t stream, const StepView& step, const Mix& a, DType window, int32_t group) {
  if (window == DType::bf16) return launch<bf16>(stream, step, a, group);
  launch<float>(stream, step, a, group);
}

}  // namespace godwit::sm90::mix
