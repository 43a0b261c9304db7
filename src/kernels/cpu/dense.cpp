// Embedding, norms, SwiGLU and the other row-wise ops, and the linears' entry points.
#include <cmath>
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dense.cpp"
#include "hwy/foreach_target.h"
// clang-format off
#include "kernels/cpu/rows-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {
namespace {

void rms_rows(const kernels::RmsNorm& a, int64_t first, int64_t last) {
  for (int64_t t = first; t < last; ++t)
    rms_row(a.x.row<float>(t), a.weight, a.eps, a.x.cols, a.out.row<float>(t));
}

void layer_norm_rows(const kernels::LayerNorm& a, int64_t first, int64_t last) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t n = a.x.cols;
  for (int64_t t = first; t < last; ++t) {
    const float* x = a.x.row<float>(t);
    float* out = a.out.row<float>(t);
    const float mean = sum_of(x, n) / static_cast<float>(n);
    const float variance = sum_of_squares(x, n, mean) / static_cast<float>(n);
    const VF factor = hn::Set(d, 1.0f / std::sqrt(variance + a.eps));
    for (int64_t i = 0; i < n; i += lanes) {
      const VF v = hn::Mul(hn::Sub(load_some(x + i, n - i), hn::Set(d, mean)), factor);
      store_some(hn::MulAdd(load_some(a.weight + i, n - i), v, load_some(a.bias + i, n - i)), out + i, n - i);
    }
  }
}

void swiglu_rows(const kernels::SwiGlu& a, int64_t first, int64_t last) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t n = a.out.cols;
  const VF limit = hn::Set(d, a.limit);
  for (int64_t t = first; t < last; ++t) {
    const float* gate = a.gate_up.row<float>(t);
    const float* up = gate + n;
    float* out = a.out.row<float>(t);
    for (int64_t i = 0; i < n; i += lanes) {
      // Min and Max keep a NaN in their second place.
      const VF g = hn::Min(limit, load_some(gate + i, n - i));
      const VF u = hn::Max(hn::Neg(limit), hn::Min(limit, load_some(up + i, n - i)));
      store_some(hn::Mul(silu_of(g), u), out + i, n - i);
    }
  }
}

void add_rows(const kernels::Add& a, int64_t first, int64_t last) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t n = a.out.cols;
  for (int64_t t = first; t < last; ++t) {
    const float* x = a.a.row<float>(t);
    const float* y = a.b.row<float>(t);
    float* out = a.out.row<float>(t);
    for (int64_t i = 0; i < n; i += lanes)
      store_some(hn::Add(load_some(x + i, n - i), load_some(y + i, n - i)), out + i, n - i);
  }
}

void embed_row(const Weight& table, int64_t row, float* out) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  const int64_t n = table.in();
  if (table.data.dtype == DType::f32) {
    std::memcpy(out, table.data.row<float>(row), static_cast<size_t>(n) * sizeof(float));
    return;
  }
  const bf16* x = table.data.row<bf16>(row);
  for (int64_t i = 0; i < n; i += lanes) store_some(load_some(x + i, n - i), out + i, n - i);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::cpu {

HWY_EXPORT(rms_rows);
HWY_EXPORT(layer_norm_rows);
HWY_EXPORT(swiglu_rows);
HWY_EXPORT(add_rows);
HWY_EXPORT(embed_row);

void CpuOps::embed(const StepView& step, const kernels::Embed& a) {
  GODWIT_ASSERT(a.table.data.dtype == DType::f32 || a.table.data.dtype == DType::bf16);
  for (int64_t t = 0; t < step.rows; ++t) {
    int64_t id = step.ids[t];
    if (id == kernels::kFromSlot) id = a.last_token[step.sequence[step.row_sequence[t]].slot];
    id -= a.first_id;
    float* out = a.out.row<float>(t);
    if (id >= 0 && id < a.table.out())
      HWY_DYNAMIC_DISPATCH(embed_row)(a.table, id, out);
    else
      std::memset(out, 0, static_cast<size_t>(a.out.cols) * sizeof(float));
  }
}

void CpuOps::rms_norm(const kernels::RmsNorm& a) {
  for_rows(a.x.rows, 2 * a.x.cols, [&](int64_t first, int64_t last, int) {
    HWY_DYNAMIC_DISPATCH(rms_rows)(a, first, last);
  });
}

void CpuOps::layer_norm(const kernels::LayerNorm& a) {
  for_rows(a.x.rows, 4 * a.x.cols, [&](int64_t first, int64_t last, int) {
    HWY_DYNAMIC_DISPATCH(layer_norm_rows)(a, first, last);
  });
}

void swiglu_range(const kernels::SwiGlu& a, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(swiglu_rows)(a, first, last);
}

void CpuOps::swiglu(const kernels::SwiGlu& a) {
  for_rows(a.out.rows, 16 * a.out.cols,
           [&](int64_t first, int64_t last, int) { swiglu_range(a, first, last); });
}

void CpuOps::add(const kernels::Add& a) {
  for_rows(a.out.rows, 2 * a.out.cols, [&](int64_t first, int64_t last, int) {
    HWY_DYNAMIC_DISPATCH(add_rows)(a, first, last);
  });
}

void CpuOps::gather_rows(const kernels::GatherRows& a) {
  GODWIT_ASSERT(a.x.dtype == a.out.dtype);
  const int64_t bytes = size_of(a.x.dtype);
  for (int64_t i = 0; i < a.out.rows; ++i) {
    std::memcpy(static_cast<std::byte*>(a.out.data) + i * a.out.stride * bytes,
                static_cast<const std::byte*>(a.x.data) + a.rows[i] * a.x.stride * bytes,
                static_cast<size_t>(a.out.cols * bytes));
  }
}

void CpuOps::linear(const kernels::Linear& a) {
  linear_many(pool_, {&a, 1}, thread_scratch());
}

void CpuOps::lm_head(const kernels::Linear& a) {
  linear(a);
}

void CpuOps::head_linear(const kernels::HeadLinear& a) {
  const int64_t in = a.x.cols / a.heads;
  const int64_t out = a.out.cols / a.heads;
  const int64_t blocks = (a.x.rows + kRowBlock - 1) / kRowBlock;
  float* const* scratch = thread_scratch();
  pool_.run(blocks * a.heads, a.x.rows * a.heads * in * out, [&](int64_t task, int thread) {
    const int64_t h = task % a.heads;
    const int64_t row = task / a.heads * kRowBlock;
    const int64_t rows = std::min(kRowBlock, a.x.rows - row);
    const Weight w{a.w.row_range(h * out, out)};
    linear_block(w, {a.x.row<float>(row) + h * in, a.x.stride}, rows, 0, out, a.out.row<float>(row) + h * out,
                 a.out.stride, linear_scratch(scratch[thread]).panel);
  });
}

}  // namespace godwit::cpu
#endif  // HWY_ONCE
