// The chunk (WY) form of KDA for prefill rows (glm5_next spec §8.5), in chunks of 16 on the grid of 64
// anchored at position 0. Spec §8.6 cuts chunks of 64 into sub-blocks of 16 to keep exponentials finite; on a
// CPU the state of a head lies in L1, so carrying it across every 16 rows costs less than the products
// between sub-blocks. Inside a chunk decays are running products of factors <= 1: nothing can overflow.
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/flush_denormals.h"
#include "kernels/cpu/limits.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/kda_chunk.cpp"
#include "hwy/foreach_target.h"
// clang-format off
#include "kernels/cpu/kda-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {
namespace {

// c[r, e] = c[r, e] * factor[r] + sum_j a[r, j] b[j, e] for kRows rows and kVectors vectors of columns; the
// factor is 1 where `factor` is null. j ascends.
template <int kRows, int kVectors>
HWY_INLINE void product_tile(const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                             int64_t depth, const float* factor, float* c, int64_t c_stride, int64_t left) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF sum[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      sum[r][i] = load_some(c + r * c_stride + i * lanes, left - i * lanes);
      if (factor != nullptr) sum[r][i] = hn::Mul(sum[r][i], hn::Set(d, factor[r]));
    }
  }
  for (int64_t j = 0; j < depth; ++j) {
    VF row[kVectors];
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) row[i] = load_some(b + j * b_stride + i * lanes, left - i * lanes);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const VF x = hn::Set(d, a[r * a_stride + j]);
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) sum[r][i] = hn::MulAdd(x, row[i], sum[r][i]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) store_some(sum[r][i], c + r * c_stride + i * lanes, left - i * lanes);
}

template <int kVectors>
HWY_INLINE void product_columns(const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                                int64_t rows, int64_t depth, const float* factor, float* c, int64_t c_stride,
                                int64_t left) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4)
    product_tile<4, kVectors>(a + r * a_stride, a_stride, b, b_stride, depth,
                              factor == nullptr ? nullptr : factor + r, c + r * c_stride, c_stride, left);
  for (; r < rows; ++r)
    product_tile<1, kVectors>(a + r * a_stride, a_stride, b, b_stride, depth,
                              factor == nullptr ? nullptr : factor + r, c + r * c_stride, c_stride, left);
}

// c [rows, columns] = c * factor + a [rows, depth] b [depth, columns]
HWY_INLINE void add_product(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t rows,
                            int64_t depth, int64_t columns, const float* factor, float* c, int64_t c_stride) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t e = 0;
  for (; e + 4 * lanes <= columns; e += 4 * lanes)
    product_columns<4>(a, a_stride, b + e, b_stride, rows, depth, factor, c + e, c_stride, 4 * lanes);
  for (; e < columns; e += lanes)
    product_columns<1>(a, a_stride, b + e, b_stride, rows, depth, factor, c + e, c_stride, columns - e);
}

// Buffers of one chunk of one head, d = head dim.
struct Chunk {
  float* q;          // [16, d] normalised, then times the decay since the chunk's start
  float* k;          // [16, d] normalised
  float* minus_k;    // [16, d] -k times the decay since the chunk's start
  float* decay;      // [16, d] e^g
  float* keys;       // [d, 16] keys as columns, decayed to the current row
  float* delta;      // [16, d] v - k S, then u of spec §8.4
  float* key_key;    // [16, 16] k_i · decayed k_j, j < i
  float* query_key;  // [16, 16] q_i · decayed k_j, j <= i
  float* since;      // [d] decay from the chunk's start to the current row
};

HWY_INLINE Chunk carve(float* p, int64_t dim) {
  const int64_t n = kChunk * dim;
  float* matrices = p + 6 * n;
  constexpr int64_t kMatrix = kChunk * kChunk;
  return {p,
          p + n,
          p + 2 * n,
          p + 3 * n,
          p + 4 * n,
          p + 5 * n,
          matrices,
          matrices + kMatrix,
          matrices + 2 * kMatrix};
}

// Normalises, gates, and forms the two 16 x 16 matrices row by row.
HWY_INLINE void chunk_matrices(const kernels::KdaChunk& a, int64_t t, int64_t rows, int64_t head, int64_t dim,
                               const Chunk& s) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = a.out.cols;
  const float q_scale = 1.0f / std::sqrt(static_cast<float>(dim));
  std::memset(s.keys, 0, static_cast<size_t>(dim * kChunk) * sizeof(float));
  for (int64_t i = 0; i < rows; ++i) {
    const float* row = a.qkv.row<float>(t + i) + head * dim;
    float* q = s.q + i * dim;
    float* k = s.k + i * dim;
    float* decay = s.decay + i * dim;
    l2_row(row, q_scale, dim, q);
    l2_row(row + width, 1.0f, dim, k);
    log_decay(a.gates, t + i, head, dim, decay);
    exp_row(decay, dim, decay);

    for (int64_t j = 0; j < kChunk; j += lanes) {
      VF kk0 = hn::Zero(d), kk1 = kk0, qk0 = kk0, qk1 = kk0;
      const auto advance = [&](int64_t r, VF& kk, VF& qk) HWY_ATTR {
        float* at = s.keys + r * kChunk + j;
        const VF old = hn::Mul(hn::Load(d, at), hn::Set(d, decay[r]));
        hn::Store(old, d, at);
        kk = hn::MulAdd(hn::Set(d, k[r]), old, kk);
        qk = hn::MulAdd(hn::Set(d, q[r]), old, qk);
      };
      int64_t r = 0;
      for (; r + 2 <= dim; r += 2) {
        advance(r, kk0, qk0);
        advance(r + 1, kk1, qk1);
      }
      if (r < dim) advance(r, kk0, qk0);
      hn::Store(hn::Add(kk0, kk1), d, s.key_key + i * kChunk + j);
      hn::Store(hn::Add(qk0, qk1), d, s.query_key + i * kChunk + j);
    }
    float own = 0;
    for (int64_t r = 0; r < dim; ++r) {
      s.keys[r * kChunk + i] = k[r];
      own += q[r] * k[r];
    }
    s.query_key[i * kChunk + i] = own;

    for (int64_t r = 0; r < dim; r += lanes) {
      VF since = load_some(decay + r, dim - r);
      if (i > 0) since = hn::Mul(since, load_some(s.since + r, dim - r));
      store_some(since, s.since + r, dim - r);
      store_some(hn::Neg(hn::Mul(load_some(k + r, dim - r), since)), s.minus_k + i * dim + r, dim - r);
      store_some(hn::Mul(load_some(q + r, dim - r), since), q + r, dim - r);
    }
  }
}

// u_i = beta_i (delta_i - sum_{j<i} kk_ij u_j) by forward substitution; out_i += sum_{j<=i} qk_ij u_j.
template <int kVectors>
HWY_INLINE void substitute(const Chunk& s, const float* beta, int64_t rows, int64_t dim, int64_t e,
                           int64_t left, float* out, int64_t out_stride) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < rows; ++i) {
    float* u_i = s.delta + i * dim + e;
    VF u[kVectors], o[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      u[v] = load_some(u_i + v * lanes, left - v * lanes);
      o[v] = load_some(out + i * out_stride + e + v * lanes, left - v * lanes);
    }
    for (int64_t j = 0; j < i; ++j) {
      const VF kk = hn::Set(d, s.key_key[i * kChunk + j]);
      const VF qk = hn::Set(d, s.query_key[i * kChunk + j]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const VF u_j = load_some(s.delta + j * dim + e + v * lanes, left - v * lanes);
        u[v] = hn::NegMulAdd(kk, u_j, u[v]);
        o[v] = hn::MulAdd(qk, u_j, o[v]);
      }
    }
    const VF b = hn::Set(d, beta[i]);
    const VF qk = hn::Set(d, s.query_key[i * kChunk + i]);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      u[v] = hn::Mul(b, u[v]);
      store_some(u[v], u_i + v * lanes, left - v * lanes);
      store_some(hn::MulAdd(qk, u[v], o[v]), out + i * out_stride + e + v * lanes, left - v * lanes);
    }
  }
}

// Rows [t, t + rows) of one head, rows <= 16; state [d, d] moves past them.
void chunk_head(const kernels::KdaChunk& a, int64_t t, int64_t rows, int64_t head, float* state,
                float* scratch) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  const int64_t width = a.out.cols;
  const int64_t dim = width / a.gates.beta.cols;
  const Chunk s = carve(scratch, dim);
  chunk_matrices(a, t, rows, head, dim, s);
  float beta[kChunk];
  float* out = a.out.row<float>(t) + head * dim;
  for (int64_t i = 0; i < rows; ++i) {
    beta[i] = write_strength(a.gates, t + i, head);
    const float* v = a.qkv.row<float>(t + i) + 2 * width + head * dim;
    std::memcpy(s.delta + i * dim, v, static_cast<size_t>(dim) * sizeof(float));
    std::memset(out + i * a.out.stride, 0, static_cast<size_t>(dim) * sizeof(float));
  }
  add_product(s.minus_k, dim, state, dim, rows, dim, dim, nullptr, s.delta, dim);
  add_product(s.q, dim, state, dim, rows, dim, dim, nullptr, out, a.out.stride);
  int64_t e = 0;
  for (; e + 4 * lanes <= dim; e += 4 * lanes)
    substitute<4>(s, beta, rows, dim, e, 4 * lanes, out, a.out.stride);
  for (; e < dim; e += lanes) substitute<1>(s, beta, rows, dim, e, dim - e, out, a.out.stride);
  add_product(s.keys, kChunk, s.delta, dim, dim, rows, dim, s.since, state, dim);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::cpu {

HWY_EXPORT(chunk_head);

int64_t kda_chunk_thread_floats(const Dims& dims) {
  return dims.kda_key * (6 * kChunk + 1) + 2 * kChunk * kChunk;
}

void CpuOps::kda_chunk(const StepView& step, const kernels::KdaChunk& a) {
  const int64_t heads = a.gates.beta.cols;
  const int64_t dim = a.out.cols / heads;
  const int64_t sequences = step.sequences - step.decode_sequences;
  const int64_t rows = step.rows - step.decode_rows;
  float* const* scratch = thread_scratch();
  pool_.run(heads * sequences, rows * a.out.cols * dim * 3, [&](int64_t task, int thread) {
    const kernels::Sequence& s = step.sequence[step.decode_sequences + task / heads];
    const int64_t head = task % heads;
    float* state =
        reinterpret_cast<float*>(a.state.base + s.slot * a.state.slot_stride + a.state.state_offset) +
        head * dim * dim;
    const FlushDenormals flush;
    if (s.first == 0) std::memset(state, 0, static_cast<size_t>(dim * dim) * sizeof(float));
    for (int64_t r = 0; r < s.rows; r += kChunk) HWY_DYNAMIC_DISPATCH(chunk_head)
    (a, s.row + r, std::min(kChunk, s.rows - r), head, state, scratch[thread]);
  });
}

}  // namespace godwit::cpu
#endif  // HWY_ONCE
