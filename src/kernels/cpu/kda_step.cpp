// The KDA recurrence of the decode family (glm5_next spec §8.4), its replay after a verify, and the gated
// output norm. Value columns are independent, so the vector runs over them and d is summed in order.
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/flush_denormals.h"
#include "kernels/cpu/limits.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/kda_step.cpp"
#include "hwy/foreach_target.h"
// clang-format off
#include "kernels/cpu/kda-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {
namespace {

// kVectors vectors of value columns from e on, of which `left` columns exist. state [dim, dim].
template <int kVectors>
HWY_INLINE void step_columns(float* state, const float* q, const float* k, const float* decay, const float* v,
                             float beta, int64_t dim, int64_t left, float* u_out, float* out) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF sum[kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) sum[i] = hn::Zero(d);
  for (int64_t r = 0; r < dim; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      const VF s = hn::Mul(load_some(state + r * dim + i * lanes, left - i * lanes), hn::Set(d, decay[r]));
      store_some(s, state + r * dim + i * lanes, left - i * lanes);
      sum[i] = hn::MulAdd(hn::Set(d, k[r]), s, sum[i]);
    }
  }
  VF u[kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) {
    u[i] = hn::Mul(hn::Set(d, beta), hn::Sub(load_some(v + i * lanes, left - i * lanes), sum[i]));
    store_some(u[i], u_out + i * lanes, left - i * lanes);
    sum[i] = hn::Zero(d);
  }
  for (int64_t r = 0; r < dim; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      float* at = state + r * dim + i * lanes;
      const VF s = hn::MulAdd(hn::Set(d, k[r]), u[i], load_some(at, left - i * lanes));
      store_some(s, at, left - i * lanes);
      sum[i] = hn::MulAdd(hn::Set(d, q[r]), s, sum[i]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) store_some(sum[i], out + i * lanes, left - i * lanes);
}

// Row t of one head. `scratch` holds 5 dim; leaves g at scratch, k at scratch + dim and u at scratch + 2 dim.
void step_head(const kernels::KdaStep& a, int64_t t, int64_t head, float* state, float* scratch) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  const int64_t width = a.out.cols;
  const int64_t dim = width / a.gates.beta.cols;
  float* g = scratch;
  float* k = g + dim;
  float* u = k + dim;
  float* q = u + dim;
  float* decay = q + dim;
  const float* row = a.qkv.row<float>(t) + head * dim;
  l2_row(row, 1.0f / std::sqrt(static_cast<float>(dim)), dim, q);
  l2_row(row + width, 1.0f, dim, k);
  log_decay(a.gates, t, head, dim, g);
  exp_row(g, dim, decay);
  const float beta = write_strength(a.gates, t, head);
  const float* v = row + 2 * width;
  float* out = a.out.row<float>(t) + head * dim;
  int64_t e = 0;
  for (; e + 4 * lanes <= dim; e += 4 * lanes)
    step_columns<4>(state + e, q, k, decay, v + e, beta, dim, 4 * lanes, u + e, out + e);
  for (; e < dim; e += lanes)
    step_columns<1>(state + e, q, k, decay, v + e, beta, dim, dim - e, u + e, out + e);
}

// Folds one pending row into the state with the arithmetic of step_columns.
void replay_head(float* state, const float* g, const float* k, const float* u, int64_t dim, float* decay) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  exp_row(g, dim, decay);
  for (int64_t r = 0; r < dim; ++r) {
    for (int64_t e = 0; e < dim; e += lanes) {
      float* at = state + r * dim + e;
      const VF s = hn::Mul(load_some(at, dim - e), hn::Set(d, decay[r]));
      store_some(hn::MulAdd(hn::Set(d, k[r]), load_some(u + e, dim - e), s), at, dim - e);
    }
  }
}

void gated_norm_rows(const kernels::GatedNorm& a, int64_t first, int64_t last) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  const int64_t dim = a.head_dim;
  for (int64_t t = first; t < last; ++t) {
    for (int64_t c = 0; c < a.o.cols; c += dim) {
      float* out = a.out.row<float>(t) + c;
      const float* z = a.gate.row<float>(t) + c;
      rms_row(a.o.row<float>(t) + c, a.weight, a.eps, dim, out);
      for (int64_t i = 0; i < dim; i += lanes)
        store_some(hn::Mul(load_some(out + i, dim - i), sigmoid_of(load_some(z + i, dim - i))), out + i,
                   dim - i);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::cpu {

HWY_EXPORT(step_head);
HWY_EXPORT(replay_head);
HWY_EXPORT(gated_norm_rows);

namespace {

float* floats_at(std::byte* slot, int64_t offset) {
  return reinterpret_cast<float*>(slot + offset);
}

void step_sequence_head(const kernels::KdaStep& a, const kernels::Sequence& s, int64_t head, float* scratch) {
  const int64_t width = a.out.cols;
  const int64_t dim = width / a.gates.beta.cols;
  const size_t state_bytes = static_cast<size_t>(dim * dim) * sizeof(float);
  std::byte* slot = a.state.base + s.slot * a.state.slot_stride;
  float* state = floats_at(slot, a.state.state_offset) + head * dim * dim;
  const bool verify = s.kind == kernels::RowKind::verify;
  if (verify) {
    float* copy = scratch + 5 * dim;
    if (s.first != 0) std::memcpy(copy, state, state_bytes);
    state = copy;
  }
  if (s.first == 0) std::memset(state, 0, state_bytes);
  for (int64_t r = 0; r < s.rows; ++r) {
    HWY_DYNAMIC_DISPATCH(step_head)(a, s.row + r, head, state, scratch);
    if (!verify) continue;
    const int64_t at = r * width + head * dim;
    const size_t bytes = static_cast<size_t>(dim) * sizeof(float);
    std::memcpy(floats_at(slot, a.state.pending_decay_offset) + at, scratch, bytes);
    std::memcpy(floats_at(slot, a.state.pending_key_offset) + at, scratch + dim, bytes);
    std::memcpy(floats_at(slot, a.state.pending_delta_offset) + at, scratch + 2 * dim, bytes);
  }
}

// The last taps - 1 rows of window ++ the first `replay` pending rows become the window.
void replay_window(const kernels::KdaReplay& a, std::byte* slot, int32_t replay, bool from_zero) {
  const int64_t row_bytes = 3 * a.heads * a.head_dim * size_of(a.state.window_dtype);
  std::byte* window = slot + a.state.window_offset;
  const std::byte* pending = slot + a.state.pending_raw_offset;
  const int64_t before = a.taps - 1;
  if (from_zero) std::memset(window, 0, static_cast<size_t>(before * row_bytes));
  for (int64_t i = 0; i < before; ++i) {
    const int64_t from = i + replay;
    const std::byte* source =
        from < before ? window + from * row_bytes : pending + (from - before) * row_bytes;
    std::memmove(window + i * row_bytes, source, static_cast<size_t>(row_bytes));
  }
}

}  // namespace

int64_t kda_step_thread_floats(const Dims& dims) {
  return dims.kda_key * (5 + dims.kda_key);
}

void CpuOps::kda_step(const StepView& step, const kernels::KdaStep& a) {
  const int64_t heads = a.gates.beta.cols;
  const int64_t dim = a.out.cols / heads;
  float* const* scratch = thread_scratch();
  pool_.run(heads * step.decode_sequences, step.decode_rows * heads * dim * (dim * 4 + 64),
            [&](int64_t task, int thread) {
              const FlushDenormals flush;
              step_sequence_head(a, step.sequence[task / heads], task % heads, scratch[thread]);
            });
}

void CpuOps::kda_replay(const StepView& step, const kernels::KdaReplay& a) {
  const int64_t dim = a.head_dim;
  const int64_t width = a.heads * dim;
  int64_t rows = 0;
  for (int32_t i = 0; i < step.sequences; ++i) rows += step.sequence[i].replay;
  if (rows == 0) return;
  float* const* scratch = thread_scratch();
  pool_.run(a.heads * step.sequences, rows * width * dim * 2, [&](int64_t task, int thread) {
    const kernels::Sequence& s = step.sequence[task / a.heads];
    const int64_t head = task % a.heads;
    std::byte* slot = a.state.base + s.slot * a.state.slot_stride;
    float* state = floats_at(slot, a.state.state_offset) + head * dim * dim;
    const FlushDenormals flush;
    const bool from_zero = s.replay > 0 && s.first == s.replay;
    if (from_zero) std::memset(state, 0, static_cast<size_t>(dim * dim) * sizeof(float));
    for (int64_t r = 0; r < s.replay; ++r) {
      const int64_t at = r * width + head * dim;
      HWY_DYNAMIC_DISPATCH(replay_head)
      (state, floats_at(slot, a.state.pending_decay_offset) + at,
       floats_at(slot, a.state.pending_key_offset) + at, floats_at(slot, a.state.pending_delta_offset) + at,
       dim, scratch[thread]);
    }
    if (head == 0 && s.replay > 0) replay_window(a, slot, s.replay, from_zero);
  });
}

void CpuOps::gated_norm(const kernels::GatedNorm& a) {
  for_rows(a.o.rows, a.o.cols * 16, [&](int64_t first, int64_t last, int) {
    HWY_DYNAMIC_DISPATCH(gated_norm_rows)(a, first, last);
  });
}

}  // namespace godwit::cpu
#endif  // HWY_ONCE
