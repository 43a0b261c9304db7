// The default bodies of the composite entries: the composition of the plain ops.
#include "kernels/ops.h"

namespace godwit::kernels {

void Ops::mhc_boundary(const MhcBoundary& a) {
  mhc_expand(a.expand);
  mhc_collapse(a.collapse);
  rms_norm({a.collapse.x, a.norm_weight, a.collapse.norm_eps, a.normed});
}

void Ops::dsa_project(const StepView& step, const DsaProject& a) {
  linear({a.x, a.q_a, a.q_latent});
  rms_norm({a.q_latent, a.q_a_norm, a.eps, a.q_latent});
  linear({a.x, a.kv_a, a.latent});
  rms_norm({a.latent, a.kv_a_norm, a.eps, a.latent});
  latent_write(step, {a.latent, a.cache});
  linear({a.q_latent, a.q_b, a.q});
  head_linear({a.q, a.absorb_k, a.heads, a.query});
  if (a.wq_b.empty()) return;
  linear({a.q_latent, a.wq_b, a.index_query});
  linear({a.x, a.weights_proj, a.index_weight});
  linear({a.x, a.wk, a.index_key});
  layer_norm({a.index_key, a.k_norm_weight, a.k_norm_bias, a.k_norm_eps, a.index_key});
  linear({a.x, a.gate, a.index_gate});
  index_write(step, {a.index_key, a.index_gate, a.ape, a.pool, a.cache});
}

void Ops::ffn(const Ffn& a) {
  const int64_t inner = a.inner.cols;
  linear({a.x, a.gate, a.gate_up.col_range(0, inner)});
  linear({a.x, a.up, a.gate_up.col_range(inner, inner)});
  swiglu({a.gate_up, a.limit, a.inner});
  linear({a.inner, a.down, a.out});
}

void Ops::moe(const Moe& a) {
  route(a.route);
  experts(a.experts);
  ffn(a.shared);
  add({a.experts.out, a.shared.out, a.out});
}

}  // namespace godwit::kernels
