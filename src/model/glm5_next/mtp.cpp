// The draft (NextN) layer: glm5_next spec §13. One DSA and MoE layer of a single stream over pairs of a token
// and the hidden state of the position before it, with caches of its own.
#include "base/fault.h"
#include "model/glm5_next/model.h"

namespace godwit::model {

void Model::draft(const schedule::StepPlan& plan, int32_t ahead, sample::Sampled* out) {
  begin_draft(plan, ahead);
  compute_draft();
  end_draft(plan, out);
}

void Model::begin_draft(const schedule::StepPlan& plan, int32_t ahead) {
  GODWIT_ASSERT(weights_->draft && drafted_ && ahead >= 0 && ahead < options_.limits.pending_rows);
  ahead_ = ahead;
  if (ahead == 0) {
    step_arrays_.follow(plan);
  } else {
    step_arrays_.set(plan);
  }
  step_ = step_arrays_.view;
  rows_ = step_.rows;
  GODWIT_ASSERT(step_arrays_.sampled <= options_.limits.sequences);
  GODWIT_ASSERT(ahead == 0 || step_arrays_.sampled == rows_);
}

void Model::compute_draft() {
  if (rows_ == 0) return;
  const DraftWeights& w = *weights_->draft;
  const View x = head_rows(ws_.x, rows_);
  const View y = head_rows(ws_.y, rows_);
  const View normed = head_rows(ws_.normed, rows_);
  const float eps = static_cast<float>(text_.rms_norm_eps);
  const auto layer = static_cast<int>(text_.layers.size());
  pair_inputs(w);
  ops_.linear({head_rows(ws_.draft.pair, rows_), w.eh_proj, x, step_.decode_rows});
  ops_.rms_norm({x, w.layer.input_norm, eps, normed});
  dsa(layer, w.layer.dsa, text_.index_share_for_mtp_iteration ? ahead_ : 0);
  ops_.add({x, y, x});
  ops_.rms_norm({x, w.layer.post_attention_norm, eps, normed});
  ffn(layer, w.layer);
  ops_.add({x, y, x});
  if (step_arrays_.sampled > 0) draft_head(w);
}

// rms(embedding; enorm) beside rms(hidden; hnorm). The target's hidden state is that behind its final norm
// (spec §13.2), a draft's is its own output behind shared_head.norm; position 0 keeps its embedding (§13.3).
void Model::pair_inputs(const DraftWeights& w) {
  const View x = head_rows(ws_.x, rows_);
  const View y = head_rows(ws_.y, rows_);
  const View pair = head_rows(ws_.draft.pair, rows_);
  const float eps = static_cast<float>(text_.rms_norm_eps);
  View hidden = head_rows(ws_.draft.hidden, ahead_ > 0 ? rows_ : 0);
  if (ahead_ == 0) {
    const View all = head_rows(ws_.x, target_rows_);
    ops_.mhc_mean({head_rows(ws_.streams, target_rows_), all});
    ops_.rms_norm({all, weights_->final_norm, eps, all});
    ops_.gather_rows({all, step_arrays_.sources, y});
    hidden = y;
  }
  ops_.rms_norm({hidden, w.hidden_norm, eps, pair.col_range(dims_.hidden, dims_.hidden)});
  const int32_t* newest = ahead_ == 0 ? state_->last_token() : drafted_;
  ops_.embed(step_, {weights_->embed, weights_->first_id, newest, x});
  comm_.all_reduce(x);
  // Mutants of the drafts' goldens: each must make them fail.
  if (GODWIT_FAULT("mutant.draft_first")) ops_.memory().zero(x.data, dims_.hidden * size_of(x.dtype));
  ops_.rms_norm({x, w.token_norm, eps, pair.col_range(0, dims_.hidden)});
  if (GODWIT_FAULT("mutant.draft_halves")) {
    ops_.rms_norm({x, w.token_norm, eps, pair.col_range(dims_.hidden, dims_.hidden)});
    ops_.rms_norm({hidden, w.hidden_norm, eps, pair.col_range(0, dims_.hidden)});
  }
}

// Of the rows that draw; leaves what the drafts behind them start from.
void Model::draft_head(const DraftWeights& w) {
  const int64_t drawn = step_arrays_.sampled;
  const float eps = static_cast<float>(text_.rms_norm_eps);
  View from = head_rows(ws_.x, drawn);
  if (ahead_ == 0) {
    from = head_rows(ws_.y, drawn);
    ops_.gather_rows({head_rows(ws_.x, rows_), step_arrays_.sampled_rows, from});
    ops_.index_reuse(step_, {head_rows(ws_.pools, rows_), head_rows(ws_.count, rows_),
                             step_arrays_.sampled_rows, 0, static_cast<int32_t>(dims_.index_pool),
                             head_rows(ws_.draft.pools, drawn), head_rows(ws_.draft.count, drawn)});
  }
  const View hidden = head_rows(ws_.draft.hidden, drawn);
  ops_.rms_norm({from, w.head_norm, eps, hidden});
  View normed = hidden;
  if (ws_.head.normed.dtype != hidden.dtype) {
    normed = head_rows(ws_.head.normed, drawn);
    ops_.rms_norm({from, w.head_norm, eps, normed});
  }
  kernels::Sample s;
  s.rows = step_arrays_.samples;
  s.banned = banned_;
  s.last_token = drafted_;
  s.out = sampled_;
  draw(normed, s);
}

void Model::end_draft(const schedule::StepPlan& plan, sample::Sampled* out) {
  const auto drawn = static_cast<int64_t>(plan.samples.size());
  if (drawn > 0) ops_.memory().download(out, sampled_, drawn * static_cast<int64_t>(sizeof(sample::Sampled)));
}

}  // namespace godwit::model
