// The outputs of all chunks at once, from the state before each: a block a chunk and head, a warp 16 value
// columns of it. The gate of the norm is multiplied here too: it is never in memory.
#include "kernels/sm90/kda/chunk.cuh"

namespace godwit::sm90 {
namespace {

using namespace chunk;

constexpr int kWarps = kDim / 16, kThreads = 32 * kWarps, kTiles = kTokens / 16;

struct alignas(16) Shared {
  uint16_t qd[2][kTokens][64];   // as in Record
  uint16_t a[kTokens][kTokens];  // follows qd there too
  uint16_t low[2 * kPart];
  float squares[kTokens][kWarps];
};

// Lane (row, quad) holds tokens row and row + 8 of a tile of 16, and of 8 columns 2 quad and 2 quad + 1.
using Tiles = float[kTiles][2][4];

__device__ void multiply(const Shared& s, const Record& record, int warp, int lane, Tiles& o) {
#pragma unroll 2
  for (int step = 0; step < kDim / 16; ++step) {
    const uint4 right = record.state[warp][step][lane];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      uint32_t left[4];
      load_left(left, &s.qd[0][0][0], 16 * tile, step, lane);
      mma_f16(o[tile][0], left, right.x, right.z);
      mma_f16(o[tile][1], left, right.y, right.w);
    }
  }
#pragma unroll
  for (int step = 0; step < kTiles; ++step) {
    const uint4 right = record.values[warp].u[step][lane];
#pragma unroll
    for (int tile = step; tile < kTiles; ++tile) {
      uint32_t left[4];
      load_left(left, &s.a[0][0], 16 * tile, step, lane);
      mma_f16(o[tile][0], left, right.x, right.z);
      mma_f16(o[tile][1], left, right.y, right.w);
    }
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const float2 back = *reinterpret_cast<const float2*>(record.back + 16 * warp + 8 * j + 2 * (lane % 4));
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o[tile][j][i] *= i % 2 ? back.y : back.x;
    }
  }
}

// The gated norm (glm5_next spec §8.7).
__device__ void normalise(const Chunks& a, Shared& s, int head, int warp, int lane, Tiles& o) {
  Tiles z = {};
  multiply_low(s.low, a.g_b.w, int64_t{head} * kDim + 16 * warp, z);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sum = fmaf(o[tile][i / 2][2 * half + i % 2], o[tile][i / 2][2 * half + i % 2], sum);
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      if (lane % 4 == 0) s.squares[16 * tile + 8 * half + lane / 4][warp] = sum;
    }
  }
  __syncthreads();
  const int column = 16 * warp + 2 * (lane % 4);
  const float2 w[2] = {*reinterpret_cast<const float2*>(a.norm + column),
                       *reinterpret_cast<const float2*>(a.norm + column + 8)};
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float* squares = s.squares[16 * tile + 8 * half + lane / 4];
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kWarps; ++i) sum += squares[i];
      const float scale = fast_rsqrt(sum / static_cast<float>(kDim) + a.eps);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        o[tile][j][2 * half] *= scale * w[j].x * fast_sigmoid(z[tile][j][2 * half]);
        o[tile][j][2 * half + 1] *= scale * w[j].y * fast_sigmoid(z[tile][j][2 * half + 1]);
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads, 2) out_kernel(StepView step, Chunks a) {
  begin_dependent();
  Shared& s = *dynamic_shared<Shared>();
  const int32_t place = static_cast<int32_t>(blockIdx.x) / a.heads;
  const int head = static_cast<int>(blockIdx.x) - place * a.heads;
  const Place at = find(step, place);
  if (at.live == 0) return;
  const Record& record = a.records[blockIdx.x];
  constexpr int kCopied = (sizeof(Record::qd) + sizeof(Record::a)) / 16;
#pragma unroll
  for (int i = threadIdx.x; i < kCopied; i += kThreads)
    copy_async(reinterpret_cast<uint4*>(&s.qd) + i, reinterpret_cast<const uint4*>(&record.qd) + i);
  commit_copies();
  const int64_t row = int64_t{step.sequence[at.sequence].row} + at.first;
  if (a.norm) stage_low<kThreads>(a.g_b.x, row, at.live, s.low);
  wait_copies<0>();
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, quad = lane % 4;
  Tiles o = {};
  multiply(s, record, warp, lane, o);
  if (a.norm) normalise(a, s, head, warp, lane, o);
  if (!a.out.narrow) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int token = 16 * tile + 8 * half + lane / 4;
        float* to = static_cast<float*>(a.out.data) + (row + token) * a.out.stride + head * kDim + 16 * warp +
                    2 * quad;
        if (token >= at.live) continue;
#pragma unroll
        for (int j = 0; j < 2; ++j)
          *reinterpret_cast<float2*>(to + 8 * j) = {o[tile][j][2 * half], o[tile][j][2 * half + 1]};
      }
    }
    return;
  }
  // Rows of 16-byte pieces by way of shared memory.
  __syncthreads();
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = 16 * warp + i / 2 * 8;
      *reinterpret_cast<uint32_t*>(s.qd[column / 64][0] +
                                   swizzled(16 * tile + i % 2 * 8 + lane / 4, column % 64 + 2 * quad)) =
          two_bf16(o[tile][i / 2][i % 2 * 2], o[tile][i / 2][i % 2 * 2 + 1]);
    }
  }
  __syncthreads();
  const int piece = lane % 16;
#pragma unroll
  for (int i = 0; i < kTokens / 2 / kWarps; ++i) {
    const int token = 2 * (kWarps * i + warp) + lane / 16;
    if (token < at.live)
      *reinterpret_cast<uint4*>(static_cast<bf16*>(a.out.data) + (row + token) * a.out.stride + head * kDim +
                                8 * piece) =
          *reinterpret_cast<const uint4*>(s.qd[piece / 8][0] + swizzled(token, piece % 8 * 8));
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
    check(cudaFuncSetAttribute(out_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)),
          "kda_chunk");
    return true;
  }();
  static_cast<void>(sized);
  launch_dependent(stream, "kda_chunk",
                   blocks_for(places(step.rows - step.decode_rows, sequences) * a.heads, 1), kThreads,
                   sizeof(Shared), out_kernel, step, a);
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
  c.f_b = {rows_of<const float>(a.forget.x), rows_of<const bf16>(a.forget.w.data)};
  c.g_b = {rows_of<const float>(a.gate.x), rows_of<const bf16>(a.gate.w.data)};
  c.norm = a.norm.weight;
  c.eps = a.norm.eps;
  launch(stream, step, c);
  kda_window(stream, step, a.conv);
}

}  // namespace godwit::sm90
