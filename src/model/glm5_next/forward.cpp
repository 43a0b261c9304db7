#include "base/clock.h"
#include "model/glm5_next/model.h"

namespace godwit::model {

void Model::forward(const schedule::StepPlan& plan, sample::Sampled* out, schedule::MaskSource* masks) {
  const Recorded* r = masks != nullptr && masks->count() > 0 ? nullptr : recorded(plan);
  begin(plan, r ? r->rows : 0);
  if (r) {
    r->steps->replay();
  } else {
    compute({}, masks);
  }
  end(plan, out);
}

void Model::begin(const schedule::StepPlan& plan, int64_t padded) {
  damaged_.clear();
  copied_ns_ = 0;
  if (!plan.moves.empty()) {
    const SteadyClock clock;
    const int64_t started = clock.now_ns();
    host_->run(plan.moves, *state_, damaged_);
    copied_ns_ = clock.now_ns() - started;
  }
  for (const schedule::SnapshotCommand& c : plan.restores) state_->restore(c.slot, c.snapshot);
  step_arrays_.set(plan, padded);
  step_ = step_arrays_.view;
  rows_ = step_.rows;
  target_rows_ = rows_;
}

// glm5_next spec §1, §5: streams start as the embedding; each layer has an attention and an FFN site, joined
// by mHC.
void Model::compute(const Parts& parts, schedule::MaskSource* masks) {
  if (rows_ == 0) return;
  const View streams = head_rows(ws_.streams, rows_);
  const View mix = head_rows(ws_.mix, rows_);
  const View x = head_rows(ws_.x, rows_);
  const View normed = head_rows(ws_.normed, rows_);
  const View y = head_rows(ws_.y, rows_);
  const float eps = static_cast<float>(text_.rms_norm_eps);
  const auto collapse = [&](const kernels::MhcWeights& w) {
    return kernels::MhcCollapse{streams,
                                w,
                                eps,
                                static_cast<float>(text_.hc_eps),
                                static_cast<int32_t>(text_.hc_sinkhorn_iters),
                                mix,
                                x,
                                step_.decode_rows};
  };
  const auto attention_type = [](const LayerWeights& w) {
    return w.kind.attention == LayerAttention::kda ? w.kda.q.data.dtype : w.dsa.q_a.data.dtype;
  };
  // From one sublayer to the next, whose first products have weights of type `next`.
  const auto boundary = [&](const kernels::MhcExpand& expand, const kernels::MhcWeights& w, const float* norm,
                            DType next) {
    if (parts.mhc) ops_.mhc_boundary({expand, collapse(w), norm, normed, next == DType::f8_e4m3});
  };
  const kernels::MhcExpand before{mix, y, streams};

  if (parts.head) {
    ops_.embed(step_, {weights_->embed, weights_->first_id, state_->last_token(), x});
    comm_.all_reduce(x);
    ops_.mhc_broadcast({x, streams});
  }
  const LayerWeights& first = weights_->layers[0];
  boundary({}, first.attention_hc, first.input_norm, attention_type(first));
  const int layers = static_cast<int>(weights_->layers.size());
  for (int i = 0; i < layers; ++i) {
    const LayerWeights& w = weights_->layers[static_cast<size_t>(i)];
    if (w.kind.attention == LayerAttention::kda) {
      if (parts.kda) kda(i, w.kda);
    } else {
      if (parts.dsa) dsa(i, w.dsa);
    }
    boundary(before, w.ffn_hc, w.post_attention_norm,
             w.kind.mlp == LayerMlp::dense ? w.dense.gate.data.dtype : w.moe.router.data.dtype);
    if (parts.ffn) ffn(i, w);
    if (i + 1 < layers && !observer_) {
      const LayerWeights& next = weights_->layers[static_cast<size_t>(i) + 1];
      boundary(before, next.attention_hc, next.input_norm, attention_type(next));
      continue;
    }
    if (parts.mhc) ops_.mhc_expand({mix, y, streams});
    if (observer_) observer_->after_layer(i, on_host(streams, mirrors_[0]));
    if (i + 1 == layers || !parts.mhc) continue;
    const LayerWeights& next = weights_->layers[static_cast<size_t>(i) + 1];
    boundary({}, next.attention_hc, next.input_norm, attention_type(next));
  }
  if (parts.head && step_arrays_.sampled > 0) head(masks);
}

void Model::end(const schedule::StepPlan& plan, sample::Sampled* out) {
  // The one wait of a step.
  const auto drawn = static_cast<int64_t>(plan.samples.size());
  if (drawn > 0) ops_.memory().download(out, sampled_, drawn * static_cast<int64_t>(sizeof(sample::Sampled)));
  for (const schedule::SnapshotCommand& c : plan.saves) state_->save(c.slot, c.snapshot);
}

}  // namespace godwit::model
