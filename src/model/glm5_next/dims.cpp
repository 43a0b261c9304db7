#include "model/glm5_next/dims.h"

#include <algorithm>

namespace godwit::model {

kernels::Dims rank_dims(const TextConfig& text, const ShardPlan& plan) {
  kernels::Dims d;
  d.hidden = text.hidden_size;
  d.streams = text.hc_mult;
  d.vocab = text.vocab_size;
  d.kda_heads = text.linear_num_heads / plan.tp();
  d.kda_key = text.linear_head_dim;
  d.conv_taps = text.linear_conv_kernel_dim;
  d.mla_heads = text.num_attention_heads / plan.tp();
  d.latent = text.kv_lora_rank;
  d.nope = text.qk_head_dim;
  d.value = text.v_head_dim;
  d.index_heads = text.index_n_heads;  // the indexer is replicated (spec §17)
  d.index_dim = text.index_head_dim;
  d.index_pool = text.index_kpool;
  d.index_topk = text.index_topk;
  d.experts = text.n_routed_experts;
  d.experts_topk = text.num_experts_per_tok;
  d.expert_inner = text.moe_intermediate_size / plan.expert_ranks();
  d.shared_inner = text.shared_intermediate_size() / plan.tp();
  d.widest_inner = std::max({d.expert_inner, text.intermediate_size / plan.tp(), d.shared_inner});
  return d;
}

int64_t list_pools(const kernels::Dims& d, const kernels::StepLimits& limits) {
  const int64_t selected = d.index_pool > 0 ? d.index_topk / d.index_pool : 0;
  return drafts(limits) && d.index_pool > 0
             ? selected + (limits.pending_rows + d.index_pool - 1) / d.index_pool
             : selected;
}

kernels::Dims op_dims(kernels::Dims d, const kernels::StepLimits& limits) {
  d.index_topk = list_pools(d, limits) * d.index_pool;
  return d;
}

}  // namespace godwit::model
