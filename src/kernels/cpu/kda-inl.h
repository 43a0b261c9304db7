// What the recurrence and the chunk form of KDA share: gates and normalised q and k (glm5_next spec §8.3).
#include <cmath>

#include "kernels/cpu/rows-inl.h"
#include "kernels/ops/kda.h"

#if defined(GODWIT_CPU_KDA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GODWIT_CPU_KDA_INL_H_
#undef GODWIT_CPU_KDA_INL_H_
#else
#define GODWIT_CPU_KDA_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {

// log-decay g = bound * sigmoid(a_exp (f + dt_bias)) of one head
HWY_INLINE void log_decay(const kernels::KdaGates& gates, int64_t t, int64_t head, int64_t dim, float* g) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* f = gates.forget.row<float>(t) + head * dim;
  const float* bias = gates.dt_bias + head * dim;
  const VF a = hn::Set(d, gates.a_exp[head]);
  for (int64_t i = 0; i < dim; i += lanes) {
    const VF x = hn::Mul(a, hn::Add(load_some(f + i, dim - i), load_some(bias + i, dim - i)));
    store_some(hn::Mul(hn::Set(d, gates.lower_bound), sigmoid_of(x)), g + i, dim - i);
  }
}

HWY_INLINE void exp_row(const float* g, int64_t dim, float* out) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  for (int64_t i = 0; i < dim; i += lanes) store_some(exp_of(load_some(g + i, dim - i)), out + i, dim - i);
}

// out = x / sqrt(sum x^2 + 1e-6) * scale (trap T7: the sum, eps inside the root)
HWY_INLINE void l2_row(const float* x, float scale, int64_t dim, float* out) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF factor = hn::Set(d, scale / std::sqrt(sum_of_squares(x, dim) + 1e-6f));
  for (int64_t i = 0; i < dim; i += lanes)
    store_some(hn::Mul(load_some(x + i, dim - i), factor), out + i, dim - i);
}

HWY_INLINE float write_strength(const kernels::KdaGates& gates, int64_t t, int64_t head) {
  return 1.0f / (1.0f + std::exp(-gates.beta.row<float>(t)[head]));
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
