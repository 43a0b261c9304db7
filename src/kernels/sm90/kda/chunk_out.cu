// The outputs of all chunks at once, from the state before each: a block a chunk and head, a warp 16 tokens
// of it with all value columns, so that the gated norm of a token needs only the lanes that hold it.
#include "kernels/sm90/kda/chunk.cuh"

namespace godwit::sm90 {
namespace {

using namespace chunk;

constexpr int kThreads = kTokens / 16 * 32, kTiles = kDim / 8;

// What a block reads of a record; all but u as it lies there.
struct alignas(16) Copied {
  uint4 u[kDim / 16][kTokens / 16][32];
  uint16_t qd[2][kTokens][64];
  uint16_t a[kTokens][kTokens];
  uint4 state[kDim / 16][kDim / 16][32];
  float back[kDim];
};
static_assert(sizeof(Copied) - offsetof(Copied, qd) == sizeof(Record) - offsetof(Record, qd));

// Rows of 16 tokens of a tile as the left operand, columns [16 step, 16 step + 16).
__device__ inline void load_left(uint32_t (&m)[4], const uint16_t* tiles, int first, int step, int lane) {
  const int piece = 2 * step + lane / 16;
  load_tiles(m, tiles + piece / 8 * kTokens * 64 + swizzled(first + lane % 16, piece % 8 * 8));
}

// Lane (row, quad) holds tokens row and row + 8 of the warp's, and of each 8 columns 2 quad and 2 quad + 1.
__device__ void multiply(const Copied& c, int warp, int lane, float (&o)[kTiles][4]) {
#pragma unroll 1
  for (int step = 0; step < kDim / 16; ++step) {
    uint32_t left[4];
    load_left(left, &c.qd[0][0][0], 16 * warp, step, lane);
#pragma unroll
    for (int tile = 0; tile < kDim / 16; ++tile) {
      const uint4 s = c.state[tile][step][lane];
      mma_f16(o[2 * tile], left, s.x, s.z);
      mma_f16(o[2 * tile + 1], left, s.y, s.w);
    }
  }
#pragma unroll 1
  for (int step = 0; step <= warp; ++step) {
    uint32_t left[4];
    load_left(left, &c.a[0][0], 16 * warp, step, lane);
#pragma unroll
    for (int tile = 0; tile < kDim / 16; ++tile) {
      const uint4 u = c.u[tile][step][lane];
      mma_f16(o[2 * tile], left, u.x, u.z);
      mma_f16(o[2 * tile + 1], left, u.y, u.w);
    }
  }
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    const float2 back = *reinterpret_cast<const float2*>(c.back + 8 * j + 2 * (lane % 4));
    o[j][0] *= back.x, o[j][1] *= back.y, o[j][2] *= back.x, o[j][3] *= back.y;
  }
}

// The gated norm (glm5_next spec §8.7) of the tokens that a lane holds; `t`: the row of its first, `live` of
// the two: none, the first, both.
__device__ void normalise(const Chunks& a, int head, int64_t t, int live, int quad, float (&o)[kTiles][4]) {
  float squares[2] = {0, 0};
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) squares[i / 2] = fmaf(o[j][i], o[j][i], squares[i / 2]);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    squares[h] += __shfl_xor_sync(0xffffffffu, squares[h], 1);
    squares[h] += __shfl_xor_sync(0xffffffffu, squares[h], 2);
    const float scale = fast_rsqrt(squares[h] / static_cast<float>(kDim) + a.eps);
    if (h >= live) continue;
    const float* gate = a.gate(t + 8 * h) + head * kDim + 2 * quad;
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const float2 z = *reinterpret_cast<const float2*>(gate + 8 * j);
      const float2 w = *reinterpret_cast<const float2*>(a.norm + 8 * j + 2 * quad);
      o[j][2 * h] *= scale * w.x * fast_sigmoid(z.x);
      o[j][2 * h + 1] *= scale * w.y * fast_sigmoid(z.y);
    }
  }
}

__global__ void __launch_bounds__(kThreads, 3) out_kernel(StepView step, Chunks a) {
  begin_dependent();
  Copied& c = *dynamic_shared<Copied>();
  const int32_t place = static_cast<int32_t>(blockIdx.x) / a.heads;
  const int head = static_cast<int>(blockIdx.x) - place * a.heads;
  const Place at = find(step, place);
  if (at.live == 0) return;
  const Record& record = a.records[blockIdx.x];
#pragma unroll
  for (int tile = 0; tile < kDim / 16; ++tile)
    copy_async(&c.u[tile][0][0] + threadIdx.x, &record.values[tile].u[0][0] + threadIdx.x);
  constexpr int kRest = (sizeof(Copied) - offsetof(Copied, qd)) / 16;
#pragma unroll 8
  for (int i = threadIdx.x; i < kRest; i += kThreads)
    copy_async(reinterpret_cast<uint4*>(&c.qd) + i, reinterpret_cast<const uint4*>(&record.qd) + i);
  commit_copies();
  wait_copies<0>();
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, quad = lane % 4;
  const int first = 16 * warp + lane / 4;  // token of the lane
  const int64_t row = step.sequence[at.sequence].row + at.first;
  const int live = first + 8 < at.live ? 2 : first < at.live ? 1 : 0;
  float o[kTiles][4] = {};
  multiply(c, warp, lane, o);
  if (a.norm) normalise(a, head, row + first, live, quad, o);
  if (!a.out.narrow) {
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float* to = static_cast<float*>(a.out.data) + (row + first + 8 * h) * a.out.stride + head * kDim;
        if (h < live)
          *reinterpret_cast<float2*>(to + 8 * j + 2 * quad) = {o[j][2 * h], o[j][2 * h + 1]};
      }
    }
    return;
  }
  // Rows of 16-byte pieces by way of the rows of q that only this warp has read.
  __syncwarp();
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      *reinterpret_cast<uint32_t*>(c.qd[j / 8][0] + swizzled(first + 8 * h, j % 8 * 8 + 2 * quad)) =
          two_bf16(o[j][2 * h], o[j][2 * h + 1]);
  }
  __syncwarp();
  const int piece = lane % 16;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int token = 16 * warp + 2 * i + lane / 16;
    if (token < at.live)
      *reinterpret_cast<uint4*>(static_cast<bf16*>(a.out.data) + (row + token) * a.out.stride + head * kDim +
                                8 * piece) =
          *reinterpret_cast<const uint4*>(c.qd[piece / 8][0] + swizzled(token, piece % 8 * 8));
  }
}

bool aligned(const View& v, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(v.data) % bytes == 0 && v.stride * size_of(v.dtype) % bytes == 0;
}

void launch(cudaStream_t stream, const StepView& step, const Chunks& a) {
  const int64_t sequences = step.sequences - step.decode_sequences;
  if (sequences == 0) return;
  prepare_chunks(stream, step, a);
  scan_chunks(stream, step, a);
  static const bool sized = [] {
    check(cudaFuncSetAttribute(out_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Copied)),
          "kda_chunk");
    return true;
  }();
  static_cast<void>(sized);
  launch_dependent(stream, "kda_chunk", blocks_for(places(step.rows - step.decode_rows, sequences) * a.heads, 1),
                   kThreads, sizeof(Copied), out_kernel, step, a);
}

Chunks chunks_of(const View& raw, const kernels::KdaGates& gates, const kernels::KdaState& state,
                 const View& out, void* scratch) {
  Chunks c{};
  c.raw = rows_of<const float>(raw);
  c.forget = rows_of<const float>(gates.forget);
  c.beta = rows_of<const float>(gates.beta);
  c.a_exp = gates.a_exp;
  c.dt_bias = gates.dt_bias;
  c.lower_bound = gates.lower_bound;
  c.state = state;
  c.out = activation_rows(out);
  c.heads = static_cast<int32_t>(gates.beta.cols);
  c.records = static_cast<Record*>(scratch);
  return c;
}

}  // namespace

// Sub-blocks of 16 tokens must keep e^(sum of decays) within f32 (kernels spec §4.4).
bool fits_chunk(const kernels::KdaChunk& a) {
  constexpr float kMostDecay = 5.4f;
  return a.out.cols == a.gates.beta.cols * kDim && a.gates.lower_bound <= 0 &&
         a.gates.lower_bound >= -kMostDecay && aligned(a.qkv, 16) && aligned(a.gates.forget, 16) &&
         aligned(a.out, 16) && reinterpret_cast<uintptr_t>(a.gates.dt_bias) % 16 == 0;
}

int64_t chunk_bytes(int64_t rows, int64_t sequences, int64_t heads, int64_t dim) {
  return dim == kDim ? places(rows, sequences) * heads * int64_t{sizeof(Record)} : 0;
}

void kda_chunk(cudaStream_t stream, const StepView& step, const kernels::KdaChunk& a, void* scratch) {
  launch(stream, step, chunks_of(a.qkv, a.gates, a.state, a.out, scratch));
}

void kda_mix_prefill(cudaStream_t stream, const StepView& step, const kernels::KdaMix& a, void* scratch) {
  Chunks c = chunks_of(a.conv.raw, a.gates, a.conv.state, a.norm.out, scratch);
  c.taps = a.conv.weight;
  c.gate = rows_of<const float>(a.norm.gate);
  c.norm = a.norm.weight;
  c.eps = a.norm.eps;
  launch(stream, step, c);
  kda_window(stream, step, a.conv);
}

}  // namespace godwit::sm90
