#include "model/glm5_next/workspace.h"

#include <algorithm>

#include "model/glm5_next/dims.h"

namespace godwit::model {
namespace {

struct Carver {
  std::byte* base;
  int64_t at = 0;
  int64_t end = 0;

  View take(int64_t rows, int64_t cols, DType dtype = DType::f32) {
    std::byte* p = base ? base + at : nullptr;
    at += (rows * cols * size_of(dtype) + 63) / 64 * 64;
    end = std::max(end, at);
    return make_view(p, dtype, rows, cols);
  }
};

}  // namespace

Workspace plan_workspace(const kernels::Dims& d, int64_t q_lora, const kernels::StepLimits& limits,
                         DType activations, std::byte* base) {
  const int64_t t = limits.rows;
  const int64_t r = limits.sampled_rows;
  const int64_t width = d.kda_heads * d.kda_key;
  Carver c{base};
  Workspace w;
  w.streams = c.take(t, d.streams * d.hidden);
  w.mix = c.take(t, d.streams + d.streams * d.streams);
  w.x = c.take(t, d.hidden);
  w.normed = c.take(t, d.hidden, activations);
  w.y = c.take(t, d.hidden);
  w.pools = c.take(t, d.index_topk / d.index_pool, DType::i32);
  w.count = c.take(t, 1, DType::i32);

  if (drafts(limits)) {  // what lives from draft to draft
    const int64_t s = limits.sequences;
    w.draft.hidden = c.take(s, d.hidden);
    w.draft.pools = c.take(s, d.index_topk / d.index_pool, DType::i32);
    w.draft.count = c.take(s, 1, DType::i32);
    w.draft.list = c.take(s, list_pools(d, limits), DType::i32);
    w.draft.listed = c.take(s, 1, DType::i32);
  }

  const int64_t shared = c.at;
  if (drafts(limits)) w.draft.pair = c.take(t, 2 * d.hidden, activations);

  c.at = shared;
  w.kda.raw = c.take(t, 3 * width);
  w.kda.conv = c.take(t, 3 * width);
  w.kda.low_forget = c.take(t, d.kda_key);
  w.kda.low_gate = c.take(t, d.kda_key);
  w.kda.forget = c.take(t, width);
  w.kda.gate = c.take(t, width);
  w.kda.beta = c.take(t, d.kda_heads);
  w.kda.o = c.take(t, width);
  w.kda.out = activations == DType::f32 ? w.kda.o : c.take(t, width, activations);

  c.at = shared;
  w.dsa.q_latent = c.take(t, q_lora);
  w.dsa.q = c.take(t, d.mla_heads * d.nope);
  w.dsa.latent = c.take(t, d.latent);
  w.dsa.query = c.take(t, d.mla_heads * d.latent);
  w.dsa.index_query = c.take(t, d.index_heads * d.index_dim);
  w.dsa.index_weight = c.take(t, d.index_heads);
  w.dsa.index_key = c.take(t, d.index_dim);
  w.dsa.index_gate = c.take(t, d.index_dim);
  w.dsa.attended = c.take(t, d.mla_heads * d.latent);
  w.dsa.value = c.take(t, d.mla_heads * d.value);

  c.at = shared;
  w.ffn.gate_up = c.take(t, 2 * d.widest_inner);
  w.ffn.inner = c.take(t, d.widest_inner);
  w.ffn.logits = c.take(t, d.experts);
  w.ffn.ids = c.take(t, d.experts_topk, DType::i32);
  w.ffn.weights = c.take(t, d.experts_topk);
  w.ffn.routed = c.take(t, d.hidden);
  w.ffn.shared = c.take(t, d.hidden);

  c.at = shared;
  w.head.streams = c.take(r, d.streams * d.hidden);
  w.head.hidden = c.take(r, d.hidden);
  w.head.normed = activations == DType::f32 ? w.head.hidden : c.take(r, d.hidden, activations);
  w.head.logits = c.take(r, d.vocab);
  w.bytes = c.end;
  return w;
}

}  // namespace godwit::model
