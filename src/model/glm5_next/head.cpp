// The head (glm5_next spec §12) for the rows that get logits, and their draws.
#include <algorithm>

#include "model/glm5_next/model.h"

namespace godwit::model {

void Model::head(schedule::MaskSource* masks) {
  kernels::Sample s;
  if (masks != nullptr && masks->count() > 0) {
    s.masks = masks->await();
    if (masks_) {
      ops_.memory().upload(masks_, s.masks, masks->count() * mask_bytes());
      s.masks = masks_;
    }
  }
  s.bias_ids = step_arrays_.bias_ids;
  s.bias_values = step_arrays_.bias_values;
  s.banned = banned_;
  s.stop_ids = stop_ids_;
  s.stop_count = static_cast<int32_t>(stop_words_.size());
  s.history = state_->history();
  s.last_token = state_->last_token();
  // A prompt whose log probabilities are asked for has more rows with logits than there is room for logits.
  const int64_t all = step_arrays_.sampled;
  for (int64_t first = 0; first < all; first += options_.limits.sampled_rows) {
    s.rows = step_arrays_.samples + first;
    s.out = sampled_ + first;
    sample_rows(first, std::min(all - first, options_.limits.sampled_rows), s);
  }
}

// Rows [first, first + rows) of those that get logits.
void Model::sample_rows(int64_t first, int64_t rows, kernels::Sample& s) {
  const View streams = head_rows(ws_.head.streams, rows);
  const View hidden = head_rows(ws_.head.hidden, rows);
  const View normed = head_rows(ws_.head.normed, rows);
  ops_.gather_rows({head_rows(ws_.streams, rows_), step_arrays_.sampled_rows + first, streams});
  ops_.mhc_mean({streams, hidden});
  ops_.rms_norm({hidden, weights_->final_norm, static_cast<float>(text_.rms_norm_eps), normed});
  draw(normed, s);
}

// One draw for each row of `normed`, [R, D].
void Model::draw(const View& normed, kernels::Sample& s) {
  const View logits = head_rows(ws_.head.logits, normed.rows);
  // Vocabulary shards are equal but for one row, so each rank writes its columns of the whole row.
  const View own = logits.col_range(weights_->first_id, weights_->lm_head.out());
  ops_.lm_head({normed, weights_->lm_head, own});
  if (comm_.size() > 1) comm_.all_gather(own, logits);
  if (observer_) observer_->before_sample(on_host(normed, mirrors_[0]), on_host(logits, mirrors_[1]));
  s.logits = logits;
  ops_.sample(s);
}

}  // namespace godwit::model
