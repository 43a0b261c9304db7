// The default bodies of the composite entries, compositions of the plain ops, and what holds for every
// backend.
#include "kernels/ops.h"

#include <fmt/ranges.h>

namespace godwit::kernels {

void Ops::linears(std::span<const Linear> all) {
  for (const Linear& a : all) linear(a);
}

void Ops::mhc_boundary(const MhcBoundary& a) {
  if (!a.expand.y.empty()) mhc_expand(a.expand);
  mhc_collapse(a.collapse);
  rms_norm({a.collapse.x, a.norm_weight, a.collapse.norm_eps, a.normed});
}

void Ops::kda_mix(const StepView& step, const KdaMix& a) {
  const KdaState& state = a.conv.state;
  if (step.replays > 0) kda_replay(step, {a.gates.beta.cols, a.norm.head_dim, a.conv.taps, state});
  const Linear both[] = {a.forget, a.gate};
  linears(both);
  kda_conv(step, a.conv);
  if (step.decode_rows > 0) kda_step(step, {a.conv.out, a.gates, state, a.norm.o});
  if (step.decode_rows < step.rows) kda_chunk(step, {a.conv.out, a.gates, state, a.norm.o});
  gated_norm(a.norm);
}

void Ops::dsa_project(const StepView& step, const DsaProject& a) {
  const bool indexes = !a.wq_b.empty();
  const int64_t decode = step.decode_rows;
  const Linear from_x[] = {{a.x, a.q_a, a.q_latent, decode},
                           {a.x, a.kv_a, a.latent, decode},
                           {a.x, a.weights_proj, a.index_weight, decode},
                           {a.x, a.wk, a.index_key, decode},
                           {a.x, a.gate, a.index_gate, decode}};
  linears(std::span(from_x).first(indexes ? 5 : 2));
  rms_norm({a.q_latent, a.q_a_norm, a.eps, a.q_latent});
  rms_norm({a.latent, a.kv_a_norm, a.eps, a.latent});
  latent_write(step, {a.latent, a.cache});
  const Linear from_latent[] = {{a.q_latent, a.q_b, a.q, decode},
                                {a.q_latent, a.wq_b, a.index_query, decode}};
  linears(std::span(from_latent).first(indexes ? 2 : 1));
  head_linear({a.q, a.absorb_k, a.heads, a.query, decode});
  if (!indexes) return;
  layer_norm({a.index_key, a.k_norm_weight, a.k_norm_bias, a.k_norm_eps, a.index_key});
  index_write(step, {a.index_key, a.index_gate, a.ape, a.pool, a.cache});
}

void Ops::ffn(const Ffn& a) {
  const int64_t inner = a.inner.cols;
  const Linear both[] = {{a.x, a.gate, a.gate_up.col_range(0, inner), a.decode_rows},
                         {a.x, a.up, a.gate_up.col_range(inner, inner), a.decode_rows}};
  linears(both);
  swiglu({a.gate_up, a.limit, a.inner});
  linear({a.inner, a.down, a.out, a.decode_rows});
}

void Ops::moe(const Moe& a) {
  route(a.route);
  experts(a.experts);
  ffn(a.shared);
  add({a.experts.out, a.shared.out, a.out});
}

Result<void> check_cache_format(const Ops& ops, DType format) {
  if (ops.holds(format)) return {};
  std::vector<std::string_view> held;
  for (const DType other : {DType::f32, DType::bf16, DType::f8_e4m3})
    if (ops.holds(other)) held.push_back(cache_format_name(other));
  return make_error(ErrorCode::usage, "--kv", "the {} backend has no kernels for {} caches, only for {}",
                    ops.name(), cache_format_name(format), fmt::join(held, " and "));
}

}  // namespace godwit::kernels
