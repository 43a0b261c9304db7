// The chunks of a head one after the other (kernels spec §4.4, K2), in the two forms that X12 compares.
#pragma once

#include "kda_prep.cuh"

namespace kda {

struct Outputs {
  bf16* o;       // [T, H d]
  float* state;  // [H, d key, d value], in place
};

// The ring of records of one head, with the V of kWarps * 16 value columns.
template <int kWarps, int kStages>
struct Ring {
  struct alignas(1024) Stage {
    uint8_t shared[kSharedPart];
    __half v[16 * kWarps][kChunk];
    __device__ const Record& record() const { return *reinterpret_cast<const Record*>(shared); }
  };
  Stage stage[kStages];
  bf16 out[kWarps][kChunk][16];
  uint64_t full[kStages], empty[kStages];

  __device__ void init() {
    for (int i = 0; i < kStages; ++i) barrier_init(&full[i], 1), barrier_init(&empty[i], kWarps);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __device__ void feed(const Record* records, int64_t chunks, int heads, int head, int first_column) {
    for (int64_t c = 0; c < chunks; ++c) {
      const int at = static_cast<int>(c % kStages);
      barrier_wait(&empty[at], static_cast<uint32_t>(c / kStages + 1) & 1);
      barrier_expect(&full[at], kSharedPart + sizeof(Stage::v));
      const Record& r = records[c * heads + head];
      copy_bytes(stage[at].shared, &r, kSharedPart, &full[at]);
      copy_bytes(stage[at].v, r.v[first_column], sizeof(Stage::v), &full[at]);
    }
  }
  __device__ const Stage& wait(int64_t c) {
    const int at = static_cast<int>(c % kStages);
    barrier_wait(&full[at], static_cast<uint32_t>(c / kStages) & 1);
    return stage[at];
  }
  __device__ void release(int64_t c) {
    __syncwarp();
    if (threadIdx.x % 32 == 0)
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&empty[c % kStages]))
                   : "memory");
  }
};

// What both forms of the scan share. A warp's accumulators: value columns are the 16 rows of the tensor-core
// tile.
struct Columns {
  int lane, quad, row;  // of the tile: lane / 4, and + 8
  const Inputs& in;
  const Outputs& out;
  int head, first;  // value column of row 0

  __device__ Columns(const Inputs& i, const Outputs& o, int h, int column)
      : lane(threadIdx.x % 32), quad(lane % 4), row(lane / 4), in(i), out(o), head(h), first(column) {}
  __device__ float* cell(int j, int i) const {
    return out.state + (int64_t{head} * kDim + 8 * j + 2 * quad + i % 2) * kDim + first + row + i / 2 * 8;
  }
  __device__ void load_state(float (&s)[64]) const {
#pragma unroll
    for (int j = 0; j < 16; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[4 * j + i] = *cell(j, i);
    }
  }
  __device__ void store_state(const float (&s)[64]) const {
#pragma unroll
    for (int j = 0; j < 16; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) *cell(j, i) = s[4 * j + i];
    }
  }
  // -V as accumulators [16, 64 tokens]; `v` is the warp's first row.
  __device__ void load_v(const __half* v, float (&r)[32]) const {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        const float2 pair = __half22float2(
            *reinterpret_cast<const __half2*>(v + swizzled(row + 8 * lower, 8 * j + 2 * quad)));
        r[4 * j + 2 * lower] = -pair.x, r[4 * j + 2 * lower + 1] = -pair.y;
      }
    }
  }
  // Accumulators as the left operand of the next product.
  template <int kSteps, int kValues>
  __device__ static void narrow(const float (&d)[kValues], uint32_t (&a)[kSteps][4]) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[k][i] = pack(d[8 * k + 2 * i], d[8 * k + 2 * i + 1]);
    }
  }
  __device__ void decay(const float* by, float (&s)[64]) const {
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const float2 f = *reinterpret_cast<const float2*>(by + 8 * j + 2 * quad);
      s[4 * j] *= f.x, s[4 * j + 1] *= f.y, s[4 * j + 2] *= f.x, s[4 * j + 3] *= f.y;
    }
  }
  // O of a chunk through shared memory, which turns it round: rows of 16 columns.
  __device__ void store_o(int64_t chunk, const float (&o)[32], bf16 (*turned)[16]) const {
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      uint32_t m[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(o[4 * j + 2 * i], o[4 * j + 2 * i + 1]);
        m[i] = *reinterpret_cast<const uint32_t*>(&pair);
      }
      const bf16* to = turned[8 * (j + lane / 16) + lane % 8] + lane / 8 % 2 * 8;
      asm volatile(
          "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(to)),
          "r"(m[0]), "r"(m[1]), "r"(m[2]), "r"(m[3])
          : "memory");
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int t = 16 * i + lane / 2;
      const int64_t token = chunk * kChunk + t;
      if (token < in.tokens)
        *reinterpret_cast<uint4*>(out.o + token * in.width() + head * kDim + first + lane % 2 * 8) =
            *reinterpret_cast<const uint4*>(&turned[t][lane % 2 * 8]);
    }
    __syncwarp();
  }
};

constexpr int kGroupWarps = 4;

__global__ void __launch_bounds__(32 * (kGroupWarps + 1), 1)
    scan_wgmma_kernel(Inputs in, const Record* records, Outputs out) {
  extern __shared__ uint8_t raw[];
  using Feed = Ring<kGroupWarps, 2>;
  Feed& ring = *reinterpret_cast<Feed*>(raw + (1024 - shared_address(raw) % 1024) % 1024);
  const int head = blockIdx.x / 2, half = blockIdx.x % 2, warp = threadIdx.x / 32;
  const int64_t chunks = (in.tokens + kChunk - 1) / kChunk;
  if (threadIdx.x == 0) ring.init();
  __syncthreads();
  if (warp == kGroupWarps) {
    if (threadIdx.x % 32 == 0) ring.feed(records, chunks, in.heads, head, 64 * half);
    return;
  }
  const Columns columns(in, out, head, 64 * half + 16 * warp);
  float s[64];
  columns.load_state(s);
  for (int64_t c = 0; c < chunks; ++c) {
    const Feed::Stage& stage = ring.wait(c);
    const Record& record = stage.record();
    float r[32], o[32], vn[32];
    uint32_t state[8][4], narrowed[4][4];
    Columns::narrow(s, state);
    columns.load_v(stage.v[16 * warp], r);
    settle(r);
    products_begin();
#pragma unroll
    for (int k = 0; k < 8; ++k) multiply_64(r, state[k], descriptor(record.kd[k / 4]) + 2 * (k % 4), true);
    products_commit();
#pragma unroll
    for (int k = 0; k < 8; ++k) multiply_64(o, state[k], descriptor(record.qd[k / 4]) + 2 * (k % 4), k > 0);
    products_commit();
    products_wait<1>();
    settle(r);
    Columns::narrow(r, narrowed);
    products_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k) multiply_64(vn, narrowed[k], descriptor(record.t) + 2 * k, k > 0);
    products_commit();
    columns.decay(record.decay, s);
    products_wait<0>();
    settle(vn), settle(o), settle(s);
    Columns::narrow(vn, narrowed);
    products_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k) multiply_128(s, narrowed[k], descriptor(record.kr, kChunk * 128) + 128 * k);
#pragma unroll
    for (int k = 0; k < 4; ++k) multiply_64(o, narrowed[k], descriptor(record.a) + 2 * k, true);
    products_commit();
    products_wait<0>();
    settle(s), settle(o);
    ring.release(c);
    columns.store_o(c, o, ring.out[warp]);
  }
  columns.store_state(s);
}

// d[16 x 64] += a[16 x 16 kSteps] b, rows of b are columns of d; the tiles of b above the diagonal are
// skipped.
template <bool kLower, int kSteps>
__device__ inline void multiply_rows(float (&d)[32], const uint32_t (&a)[kSteps][4], const __half* tiles,
                                     int lane) {
#pragma unroll
  for (int pair = 0; pair < kSteps / 2; ++pair) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (kLower && 2 * pair > j / 2) continue;
      uint32_t m[4];
      const int piece = 4 * pair + lane / 8;
      load_matrices(m, tiles + piece / 8 * kChunk * 64 + swizzled(8 * j + lane % 8, piece % 8 * 8));
      float(&to)[4] = reinterpret_cast<float(&)[4]>(d[4 * j]);
      mma_f16(to, a[2 * pair], m[0], m[1]);
      if (!kLower || 2 * pair + 1 <= j / 2) mma_f16(to, a[2 * pair + 1], m[2], m[3]);
    }
  }
}

template <int kWarps>
__global__ void __launch_bounds__(32 * (kWarps + 1), 1)
    scan_mma_kernel(Inputs in, const Record* records, Outputs out) {
  extern __shared__ uint8_t raw[];
  using Feed = Ring<kWarps, 2>;
  Feed& ring = *reinterpret_cast<Feed*>(raw + (1024 - shared_address(raw) % 1024) % 1024);
  constexpr int kBlocks = 8 / kWarps;
  const int head = blockIdx.x / kBlocks, part = blockIdx.x % kBlocks, warp = threadIdx.x / 32;
  const int64_t chunks = (in.tokens + kChunk - 1) / kChunk;
  if (threadIdx.x == 0) ring.init();
  __syncthreads();
  if (warp == kWarps) {
    if (threadIdx.x % 32 == 0) ring.feed(records, chunks, in.heads, head, 16 * kWarps * part);
    return;
  }
  const Columns columns(in, out, head, 16 * (kWarps * part + warp));
  const int lane = columns.lane;
  float s[64];
  columns.load_state(s);
  for (int64_t c = 0; c < chunks; ++c) {
    const auto& stage = ring.wait(c);
    const Record& record = stage.record();
    float r[32], o[32] = {}, vn[32] = {};
    uint32_t state[8][4], narrowed[4][4];
    Columns::narrow(s, state);
    columns.load_v(stage.v[16 * warp], r);
    multiply_rows<false>(r, state, &record.kd[0][0][0], lane);
    multiply_rows<false>(o, state, &record.qd[0][0][0], lane);
    Columns::narrow(r, narrowed);
    multiply_rows<true>(vn, narrowed, &record.t[0][0], lane);
    columns.decay(record.decay, s);
    Columns::narrow(vn, narrowed);
    multiply_rows<true>(o, narrowed, &record.a[0][0], lane);
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        uint32_t m[4];
        load_matrices_transposed(m, record.kr[j / 8][0] + swizzled(32 * pair + lane, j % 8 * 8));
        float(&to)[4] = reinterpret_cast<float(&)[4]>(s[4 * j]);
        mma_f16(to, narrowed[2 * pair], m[0], m[1]);
        mma_f16(to, narrowed[2 * pair + 1], m[2], m[3]);
      }
    }
    ring.release(c);
    columns.store_o(c, o, ring.out[warp]);
  }
  columns.store_state(s);
}

}  // namespace kda
