#include <algorithm>

#include "model/glm5_next/model.h"

namespace godwit::model {

// The step as flat arrays. On a backend whose memory is the host's nothing is copied.
void Model::upload(const schedule::StepPlan& plan) {
  sequences_.clear();
  row_sequence_.clear();
  sampled_rows_.clear();
  int32_t decode_rows = 0;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const schedule::PlanSequence& s = plan.sequences[i];
    sequences_.push_back(s.rows);
    for (int32_t r = 0; r < s.rows.rows; ++r) row_sequence_.push_back(static_cast<int32_t>(i));
    for (int32_t r = s.rows.rows - s.sampled_rows; r < s.rows.rows; ++r)
      sampled_rows_.push_back(s.rows.row + r);
    if (kernels::is_decode_family(s.rows.kind)) decode_rows += s.rows.rows;
  }
  step_.rows = plan.rows();
  step_.decode_rows = decode_rows;
  step_.sequences = static_cast<int32_t>(sequences_.size());
  step_.decode_sequences = plan.decode_sequences;
  step_.sequence = sequences_.data();
  step_.row_sequence = row_sequence_.data();
  step_.ids = plan.ids.data();
  step_.pages = plan.pages.data();
  rows_ = plan.rows();
}

// glm5_next spec §1, §5: streams start as the embedding; each layer has an attention and an FFN site, joined
// by mHC.
void Model::forward(const schedule::StepPlan& plan, sample::Sampled* out) {
  damaged_.clear();
  if (!plan.moves.empty()) host_->run(plan.moves, *state_, damaged_);
  for (const schedule::SnapshotCommand& c : plan.restores) state_->restore(c.slot, c.snapshot);
  upload(plan);
  if (rows_ > 0) {
    const View streams = head_rows(ws_.streams, rows_);
    const View mix = head_rows(ws_.mix, rows_);
    const View x = head_rows(ws_.x, rows_);
    const View normed = head_rows(ws_.normed, rows_);
    const View y = head_rows(ws_.y, rows_);
    const float eps = static_cast<float>(text_.rms_norm_eps);
    const auto collapse = [&](const kernels::MhcWeights& w) {
      return kernels::MhcCollapse{
          streams, w, eps, static_cast<float>(text_.hc_eps), static_cast<int32_t>(text_.hc_sinkhorn_iters),
          mix,     x};
    };

    ops_.embed(step_, {weights_->embed, weights_->first_id, state_->last_token(), x});
    comm_.all_reduce(x);
    ops_.mhc_broadcast({x, streams});
    ops_.mhc_collapse(collapse(weights_->layers[0].attention_hc));
    ops_.rms_norm({x, weights_->layers[0].input_norm, eps, normed});
    const int layers = static_cast<int>(weights_->layers.size());
    for (int i = 0; i < layers; ++i) {
      const LayerWeights& w = weights_->layers[static_cast<size_t>(i)];
      if (w.kind.attention == LayerAttention::kda) {
        kda(i, w.kda);
      } else {
        dsa(i, w.dsa);
      }
      ops_.mhc_boundary({{mix, y, streams}, collapse(w.ffn_hc), w.post_attention_norm, normed});
      ffn(i, w);
      if (i + 1 < layers && !observer_) {
        const LayerWeights& next = weights_->layers[static_cast<size_t>(i) + 1];
        ops_.mhc_boundary({{mix, y, streams}, collapse(next.attention_hc), next.input_norm, normed});
        continue;
      }
      ops_.mhc_expand({mix, y, streams});
      if (observer_) observer_->after_layer(i, streams);
      if (i + 1 == layers) break;
      const LayerWeights& next = weights_->layers[static_cast<size_t>(i) + 1];
      ops_.mhc_collapse(collapse(next.attention_hc));
      ops_.rms_norm({x, next.input_norm, eps, normed});
    }
    if (!sampled_rows_.empty()) head(plan, out);
  }
  for (const schedule::SnapshotCommand& c : plan.saves) state_->save(c.slot, c.snapshot);
}

}  // namespace godwit::model
