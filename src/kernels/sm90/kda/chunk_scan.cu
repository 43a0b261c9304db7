// The chunks of a head one after the other: a block owns 16 value columns of one head of one sequence. One
// warp multiplies and keeps their state, transposed, in its accumulators, whose layout is that of the next
// product's left operand: nothing goes through shared memory. The other warps copy the records of
// the chunks after.
#include "kernels/sm90/kda/chunk.cuh"

namespace godwit::sm90 {
namespace {

using namespace chunk;

constexpr int kCopiers = 96, kThreads = 32 + kCopiers, kStages = 3, kColumns = 16, kParts = kDim / kColumns;
constexpr int kPitch = 20;  // floats: rows of V do not meet in the same banks

struct Stage {
  Record record;
  float v[kTokens][kPitch];
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
  const Record* records;
  int64_t column;  // of the head's first value column
  int first;       // value column
  int32_t chunks;
};

__device__ void copy_chunk(const Chunks& a, const Part& p, int32_t chunk, Stage& to) {
  const int thread = static_cast<int>(threadIdx.x) - 32;
  const auto* from = reinterpret_cast<const uint4*>(p.records + int64_t{chunk} * a.heads);
  auto* record = reinterpret_cast<uint4*>(&to.record);
#pragma unroll 4
  for (int i = thread; i < static_cast<int>(sizeof(Record) / 16); i += kCopiers)
    copy_async(record + i, from + i, true);
  const int32_t live = p.s.rows - chunk * kTokens;
#pragma unroll 1
  for (int i = thread; i < kTokens * kColumns / 4; i += kCopiers) {
    const int token = i / 4, at = i % 4 * 4;
    const bool present = token < live;
    const int64_t t = int64_t{p.s.row} + chunk * kTokens + (present ? token : 0);
    copy_async(&to.v[token][at], a.qkv(t) + 2 * a.width() + p.column + p.first + at, present);
  }
}

// Lane (row, quad) holds value columns row and row + 8, and of each 8 tokens or keys 2 quad and 2 quad + 1.
__device__ void multiply_chunk(const Chunks& a, const Part& p, int32_t chunk, const Stage& stage,
                               float (&s)[16][4], Scale (&scale)[2]) {
  const int lane = threadIdx.x % 32, quad = lane % 4, row = lane / 4;
  const Record& record = stage.record;
  float r[8][4], o[8][4] = {}, vn[8][4] = {};
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
      r[j][i] = -stage.v[8 * j + 2 * quad + i % 2][row + i / 2 * 8];
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
  multiply_rows<false>(r, state, &record.kd[0][0][0], lane);  // S Kd - V
  multiply_rows<false>(o, state, &record.qd[0][0][0], lane);
  narrow(r, narrowed);
  multiply_rows<true>(vn, narrowed, &record.t[0][0], lane);
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    const float2 f = *reinterpret_cast<const float2*>(record.decay + 8 * j + 2 * quad);
    s[j][0] *= f.x, s[j][1] *= f.y, s[j][2] *= f.x, s[j][3] *= f.y;
  }
  narrow(vn, narrowed);
  multiply_rows<true>(o, narrowed, &record.a[0][0], lane);
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
  const int32_t live = p.s.rows - chunk * kTokens;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = 8 * j + 2 * quad + i % 2;
      if (token < live)
        a.out(int64_t{p.s.row} + chunk * kTokens + token)[p.column + p.first + row + i / 2 * 8] =
            o[j][i] * scale[i / 2].back;
    }
  }
}

__global__ void __launch_bounds__(kThreads) scan_kernel(StepView step, Chunks a) {
  begin_dependent();
  Stage* const stages = dynamic_shared<Stage>();
  const int head = static_cast<int>(blockIdx.x) / kParts % a.heads;
  const int32_t sequence = step.decode_sequences + static_cast<int32_t>(blockIdx.x) / kParts / a.heads;
  const kernels::Sequence& s = step.sequence[sequence];
  const Part part{s, a.records + int64_t{first_place(step, sequence)} * a.heads + head, int64_t{head} * kDim,
                  static_cast<int>(blockIdx.x) % kParts * kColumns, (s.rows + kTokens - 1) / kTokens};
  if (threadIdx.x >= 32) {
    const auto copy = [&](int32_t c) {
      if (c < part.chunks) copy_chunk(a, part, c, stages[c % kStages]);
      commit_copies();
    };
    for (int32_t c = 0; c < kStages - 1; ++c) copy(c);
#pragma unroll 1
    for (int32_t c = 0; c < part.chunks; ++c) {
      wait_copies<kStages - 2>();
      named_barrier<1, kThreads>();  // chunk c is there, and c - 1 is done with its stage
      copy(c + kStages - 1);
    }
    return;
  }
  const int lane = threadIdx.x % 32, quad = lane % 4, row = lane / 4;
  float* stored = KdaSlot(a.state, s.slot).state() + part.column * kDim + part.first + row;
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
    named_barrier<1, kThreads>();
    multiply_chunk(a, part, c, stages[c % kStages], cells, scale);
  }
#pragma unroll
  for (int j = 0; j < 16; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      stored[(8 * j + 2 * quad + i % 2) * kDim + i / 2 * 8] = cells[j][i] * scale[i / 2].back;
  }
}

}  // namespace

// Sub-blocks of 16 tokens must keep e^(sum of decays) within f32 (kernels spec §4.4).
bool fits_chunk(const kernels::KdaChunk& a) {
  constexpr float kMostDecay = 5.4f;
  const auto aligned = [](const View& v) {
    return reinterpret_cast<uintptr_t>(v.data) % 16 == 0 && v.stride % 4 == 0;
  };
  return a.out.cols == a.gates.beta.cols * kDim && a.gates.lower_bound <= 0 &&
         a.gates.lower_bound >= -kMostDecay && aligned(a.qkv) && aligned(a.gates.forget) &&
         reinterpret_cast<uintptr_t>(a.gates.dt_bias) % 16 == 0;
}

int64_t chunk_bytes(int64_t rows, int64_t sequences, int64_t heads, int64_t dim) {
  return dim == kDim ? places(rows, sequences) * heads * int64_t{sizeof(Record)} : 0;
}

void kda_chunk(cudaStream_t stream, const StepView& step, const kernels::KdaChunk& a, void* scratch) {
  const Chunks chunks{rows_of<const float>(a.qkv),
                      rows_of<const float>(a.gates.forget),
                      rows_of<const float>(a.gates.beta),
                      a.gates.a_exp,
                      a.gates.dt_bias,
                      a.gates.lower_bound,
                      a.state,
                      rows_of<float>(a.out),
                      static_cast<int32_t>(a.gates.beta.cols),
                      static_cast<Record*>(scratch)};
  const int64_t sequences = step.sequences - step.decode_sequences;
  if (sequences == 0) return;
  prepare_chunks(stream, step, chunks);
  static const bool sized = [] {
    check(cudaFuncSetAttribute(scan_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(kStages * sizeof(Stage))),
          "kda_chunk");
    return true;
  }();
  static_cast<void>(sized);
  launch_dependent(stream, "kda_chunk", blocks_for(sequences * chunks.heads * kParts, 1), kThreads,
                   kStages * sizeof(Stage), scan_kernel, step, chunks);
}

}  // namespace godwit::sm90
