// The sublayers: each reads ws_.normed and leaves its output, summed over ranks, in ws_.y.
#include <cmath>

#include "base/fault.h"
#include "model/glm5_next/model.h"

namespace godwit::model {

// KDA: glm5_next spec §8. f, b and z read the layer input, not the conv output (trap T10).
void Model::kda(int layer, const KdaWeights& w) {
  const View x = head_rows(ws_.normed, rows_);
  const View raw = head_rows(ws_.kda.raw, rows_);
  const View conv = head_rows(ws_.kda.conv, rows_);
  const View low_forget = head_rows(ws_.kda.low_forget, rows_);
  const View low_gate = head_rows(ws_.kda.low_gate, rows_);
  const View forget = head_rows(ws_.kda.forget, rows_);
  const View gate = head_rows(ws_.kda.gate, rows_);
  const View beta = head_rows(ws_.kda.beta, rows_);
  const View o = head_rows(ws_.kda.o, rows_);
  const View out = head_rows(ws_.kda.out, rows_);
  const int64_t width = w.q.out();
  const int32_t taps = static_cast<int32_t>(dims_.conv_taps);

  const int64_t decode = step_.decode_rows;
  const kernels::Linear from_x[] = {{x, w.q, raw.col_range(0, width), decode},
                                    {x, w.k, raw.col_range(width, width), decode},
                                    {x, w.v, raw.col_range(2 * width, width), decode},
                                    {x, w.f_a, low_forget, decode},
                                    {x, w.g_a, low_gate, decode},
                                    {x, w.b, beta, decode}};
  ops_.linears(from_x);
  ops_.kda_mix(step_,
               {.conv = {raw, w.conv, taps, state_->kda(layer), conv},
                .forget = {low_forget, w.f_b, forget, decode},
                .gate = {low_gate, w.g_b, gate, decode},
                .gates = {forget, beta, w.a_exp, w.dt_bias, static_cast<float>(text_.linear_lower_bound)},
                .norm = {o, gate, w.o_norm, dims_.kda_key, static_cast<float>(text_.rms_norm_eps), out}});
  ops_.linear({out, w.o, head_rows(ws_.y, rows_), decode});
  comm_.all_reduce(head_rows(ws_.y, rows_));
}

// MLA in absorbed form with the k-pool indexer: glm5_next spec §9, §10.
void Model::dsa(int layer, const DsaWeights& w, int32_t ahead) {
  const auto& b = ws_.dsa;
  const kernels::DsaCache cache = state_->dsa(layer);
  const int32_t pool = static_cast<int32_t>(dims_.index_pool);

  kernels::DsaProject p;
  p.x = head_rows(ws_.normed, rows_);
  p.q_a = w.q_a;
  p.kv_a = w.kv_a;
  p.q_b = w.q_b;
  p.q_a_norm = w.q_a_norm;
  p.kv_a_norm = w.kv_a_norm;
  p.eps = static_cast<float>(text_.rms_norm_eps);
  p.absorb_k = w.absorb_k;
  p.heads = dims_.mla_heads;
  // Keys of drafts are never selected from: the first draft of the next round writes those that were kept
  // (spec §13.5).
  if (ahead == 0) p.wq_b = w.wq_b;
  p.wk = w.wk;
  p.gate = w.gate;
  p.weights_proj = w.weights_proj;
  p.k_norm_weight = w.k_norm_weight;
  p.k_norm_bias = w.k_norm_bias;
  p.k_norm_eps = 1e-6f;  // not in the config (spec §2.2)
  p.ape = w.ape;
  p.pool = pool;
  p.index_heads = dims_.index_heads;
  p.cache = cache;
  p.q_latent = head_rows(b.q_latent, rows_);
  p.q = head_rows(b.q, rows_);
  p.latent = head_rows(b.latent, rows_);
  p.query = head_rows(b.query, rows_);
  p.index_query = head_rows(b.index_query, rows_);
  p.index_weight = head_rows(b.index_weight, rows_);
  p.index_key = head_rows(b.index_key, rows_);
  p.index_gate = head_rows(b.index_gate, rows_);
  ops_.dsa_project(step_, p);

  const View pools = head_rows(ahead > 0 ? ws_.draft.list : ws_.pools, rows_);
  const View count = head_rows(ahead > 0 ? ws_.draft.listed : ws_.count, rows_);
  if (ahead > 0) {
    const int32_t added = GODWIT_FAULT("mutant.draft_list") ? 0 : ahead;
    ops_.index_reuse(step_, {ws_.draft.pools, ws_.draft.count, nullptr, added, pool, pools, count});
  } else if (!w.shared_indexer) {
    const double scale = 1.0 / std::sqrt(static_cast<double>(dims_.index_heads * dims_.index_dim));
    ops_.index_select(step_, {p.index_query, p.index_weight, static_cast<float>(scale), cache, pool,
                              static_cast<int32_t>(dims_.index_topk), dims_.index_heads, pools, count});
  }
  if (observer_) observer_->after_select(layer, on_host(pools, mirrors_[0]), on_host(count, mirrors_[1]));

  const View attended = head_rows(b.attended, rows_);
  const View value = head_rows(b.value, rows_);
  const double scale = 1.0 / std::sqrt(static_cast<double>(dims_.nope));  // stays so when absorbed (trap T18)
  ops_.mla_attend(step_,
                  {p.query, cache, pools, count, pool, dims_.mla_heads, static_cast<float>(scale), attended});
  ops_.head_linear({attended, w.absorb_v, dims_.mla_heads, value, step_.decode_rows});
  ops_.linear({value, w.o, head_rows(ws_.y, rows_), step_.decode_rows});
  comm_.all_reduce(head_rows(ws_.y, rows_));
}

// Dense FFN or MoE: glm5_next spec §11.
void Model::ffn(int layer, const LayerWeights& w) {
  const auto& b = ws_.ffn;
  const View x = head_rows(ws_.normed, rows_);
  const View y = head_rows(ws_.y, rows_);
  const float limit = static_cast<float>(text_.swiglu_limit);
  // The scratch buffers are as wide as the widest FFN; each FFN uses packed rows of its own width.
  const auto dense = [&](const FfnWeights& f, const View& out) {
    const int64_t inner = f.gate.out();
    return kernels::Ffn{x,
                        f.gate,
                        f.up,
                        f.down,
                        limit,
                        make_view(b.gate_up.data, b.gate_up.dtype, rows_, 2 * inner),
                        make_view(b.inner.data, b.inner.dtype, rows_, inner),
                        out,
                        step_.decode_rows};
  };
  if (w.kind.mlp == LayerMlp::dense) {
    ops_.ffn(dense(w.dense, y));
  } else {
    const View ids = head_rows(b.ids, rows_);
    const View weights = head_rows(b.weights, rows_);
    kernels::Moe m;
    m.route = {x,
               w.moe.router,
               w.moe.bias,
               static_cast<float>(text_.routed_scaling_factor),
               head_rows(b.logits, rows_),
               ids,
               weights,
               step_.decode_rows};
    m.experts = {x,
                 ids,
                 weights,
                 w.moe.experts,
                 w.moe.dtype,
                 w.moe.inner,
                 w.moe.first_expert,
                 w.moe.expert_count,
                 limit,
                 head_rows(b.routed, rows_),
                 step_.decode_rows};
    m.shared = dense(w.moe.shared, head_rows(b.shared, rows_));
    m.out = y;
    ops_.moe(m);
    if (observer_) observer_->after_route(layer, on_host(ids, mirrors_[0]), on_host(weights, mirrors_[1]));
  }
  comm_.all_reduce(y);
}

}  // namespace godwit::model
