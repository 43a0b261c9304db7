// The head (glm5_next spec §12) for the rows that get logits, and their draws.
#include "model/glm5_next/model.h"

namespace godwit::model {

void Model::head(const schedule::StepPlan& plan, sample::Sampled* out) {
  const int64_t rows = static_cast<int64_t>(sampled_rows_.size());
  GODWIT_ASSERT(plan.samples.size() == sampled_rows_.size());
  const View streams = head_rows(ws_.head.streams, rows);
  const View hidden = head_rows(ws_.head.hidden, rows);
  const View logits = head_rows(ws_.head.logits, rows);
  ops_.gather_rows({head_rows(ws_.streams, rows_), sampled_rows_.data(), streams});
  ops_.mhc_mean({streams, hidden});
  ops_.rms_norm({hidden, weights_->final_norm, static_cast<float>(text_.rms_norm_eps), hidden});
  // Vocabulary shards are equal but for one row, so each rank writes its columns of the whole row.
  const View own = logits.col_range(weights_->first_id, weights_->lm_head.out());
  ops_.lm_head({hidden, weights_->lm_head, own});
  if (comm_.size() > 1) comm_.all_gather(own, logits);
  if (observer_) observer_->before_sample(hidden, logits);

  kernels::Sample s;
  s.logits = logits;
  s.rows = plan.samples.data();
  s.bias_ids = plan.bias_ids.data();
  s.bias_values = plan.bias_values.data();
  s.banned = banned_.data();
  s.stop_ids = stop_ids_.data();
  s.stop_count = static_cast<int32_t>(stop_ids_.size());
  s.history = state_->history();
  s.last_token = state_->last_token();
  s.out = out;
  ops_.sample(s);
}

}  // namespace godwit::model
