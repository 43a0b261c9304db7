// What a DSA layer stores: latents, the index ring and pools as their last token arrives (glm5_next spec
// §9.1, §10.2), and the projections before it.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/paged.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dsa_cache.cpp"
#include "hwy/foreach_target.h"
// clang-format off
#include "kernels/cpu/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {
namespace {

// out[d] = sum_s softmax_s(gate_s[d] + ape[s, d]) key_s[d]; entries[s] = [2, dim] key then gate.
void pool_keys(const float* const* entries, const float* ape, int64_t pool, int64_t dim, float* out) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < dim; i += lanes) {
    const int64_t left = dim - i;
    const auto logit = [&](int64_t s) HWY_ATTR {
      return hn::Add(load_some(entries[s] + dim + i, left), load_some(ape + s * dim + i, left));
    };
    VF largest = logit(0);
    for (int64_t s = 1; s < pool; ++s) largest = hn::Max(largest, logit(s));
    VF weights = hn::Zero(d);
    VF sum = hn::Zero(d);
    for (int64_t s = 0; s < pool; ++s) {
      const VF e = exp_of(hn::Sub(logit(s), largest));
      weights = hn::Add(weights, e);
      sum = hn::MulAdd(e, load_some(entries[s] + i, left), sum);
    }
    store_some(hn::Div(sum, weights), out + i, left);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::cpu {

HWY_EXPORT(pool_keys);

void CpuOps::latent_write(const StepView& step, const kernels::LatentWrite& a) {
  for (int32_t i = 0; i < step.sequences; ++i) {
    const kernels::Sequence& s = step.sequence[i];
    const Paged pages{step, s};
    for (int64_t r = 0; r < s.rows; ++r)
      kernels::store_latent(pages.latent(a.cache, s.first + r, a.latent.cols), a.cache.latent_dtype,
                            a.latent.row<float>(s.row + r), a.latent.cols);
  }
}

void CpuOps::index_write(const StepView& step, const kernels::IndexWrite& a) {
  const int64_t dim = a.key.cols;
  const int64_t pools_per_page = kernels::kPageTokens / a.pool;
  float* const pooled = thread_scratch()[0];
  for (int32_t i = 0; i < step.sequences; ++i) {
    const kernels::Sequence& s = step.sequence[i];
    const Paged pages{step, s};
    float* ring = reinterpret_cast<float*>(a.cache.ring + s.slot * a.cache.ring_stride);
    const auto entry = [&](int64_t position) { return ring + position % a.cache.ring_length * 2 * dim; };
    for (int64_t r = 0; r < s.rows; ++r) {
      const int64_t position = s.first + r;
      std::memcpy(entry(position), a.key.row<float>(s.row + r), static_cast<size_t>(dim) * sizeof(float));
      std::memcpy(entry(position) + dim, a.gate.row<float>(s.row + r),
                  static_cast<size_t>(dim) * sizeof(float));
      if ((position + 1) % a.pool != 0) continue;
      const int64_t p = position / a.pool;
      const float* entries[kernels::kPageTokens];
      for (int64_t j = 0; j < a.pool; ++j) entries[j] = entry(p * a.pool + j);
      HWY_DYNAMIC_DISPATCH(pool_keys)(entries, a.ape, a.pool, dim, pooled);
      kernels::store_key(pages.key(a.cache, pools_per_page, p, dim), a.cache.pooled_dtype, pooled, dim);
    }
  }
}

void CpuOps::index_reuse(const StepView& step, const kernels::IndexReuse& a) {
  for (int64_t r = 0; r < a.out_pools.rows; ++r) {
    const int64_t from = a.rows ? a.rows[r] : r;
    int64_t count = *a.count.row<int32_t>(from);
    int32_t* const out = a.out_pools.row<int32_t>(r);
    std::memcpy(out, a.pools.row<int32_t>(from), static_cast<size_t>(count) * sizeof(int32_t));
    if (a.ahead > 0) {
      const kernels::Sequence& s = step.sequence[step.row_sequence[r]];
      const int64_t end = s.first + r - s.row + 1;
      const int64_t first = std::max<int64_t>(end - a.ahead, 0) / a.pool;
      GODWIT_ASSERT(count + end / a.pool - first <= a.out_pools.cols);
      for (int64_t p = first; p < end / a.pool; ++p) out[count++] = static_cast<int32_t>(p);
    }
    std::fill(out + count, out + a.out_pools.cols, -1);
    *a.out_count.row<int32_t>(r) = static_cast<int32_t>(count);
  }
}

void CpuOps::dsa_project(const StepView& step, const kernels::DsaProject& a) {
  const bool indexer = !a.wq_b.empty();
  // Everything that reads x in one sharing of the pool, then everything that reads the query latent.
  const kernels::Linear from_x[] = {{a.x, a.q_a, a.q_latent},
                                    {a.x, a.kv_a, a.latent},
                                    {a.x, a.weights_proj, a.index_weight},
                                    {a.x, a.wk, a.index_key},
                                    {a.x, a.gate, a.index_gate}};
  linear_many(pool_, {from_x, indexer ? 5u : 2u}, thread_scratch());
  rms_norm({a.q_latent, a.q_a_norm, a.eps, a.q_latent});
  rms_norm({a.latent, a.kv_a_norm, a.eps, a.latent});
  latent_write(step, {a.latent, a.cache});
  const kernels::Linear from_latent[] = {{a.q_latent, a.q_b, a.q}, {a.q_latent, a.wq_b, a.index_query}};
  linear_many(pool_, {from_latent, indexer ? 2u : 1u}, thread_scratch());
  head_linear({a.q, a.absorb_k, a.heads, a.query});
  if (!indexer) return;
  layer_norm({a.index_key, a.k_norm_weight, a.k_norm_bias, a.k_norm_eps, a.index_key});
  index_write(step, {a.index_key, a.index_gate, a.ape, a.pool, a.cache});
}

}  // namespace godwit::cpu
#endif  // HWY_ONCE
