#include "kernels/sample_rows.h"

#include <algorithm>

#include "base/assert.h"

namespace godwit::kernels {

void sample_one(const Sample& a, int64_t r, sample::Candidate* workspace) {
  const sample::SamplingRow& row = a.rows[r];
  const int64_t vocab = a.logits.cols;
  const int64_t mask_words = (vocab + 31) / 32;
  int32_t* history = row.history ? a.history.counts + row.slot * a.history.stride : nullptr;
  sample::RowContext context;
  context.bias_ids = a.bias_ids + row.bias_offset;
  context.bias_values = a.bias_values + row.bias_offset;
  context.history = history;
  context.mask = row.mask >= 0 ? a.masks + row.mask * mask_words : nullptr;
  context.banned = a.banned;
  context.stop_ids = a.stop_ids;
  context.stop_count = a.stop_count;
  const sample::Sampled drawn = sample::sample_row(a.logits.row<float>(r), vocab, row, context, workspace);
  a.out[r] = drawn;
  if (row.scored >= 0) return;
  a.last_token[row.slot] = std::max(drawn.id, 0);
  if (history && drawn.finite) ++history[drawn.id];
}

void start_history(const HistoryStart& a) {
  int32_t* counts = a.history.counts + a.slot * a.history.stride;
  std::fill_n(counts, a.history.stride, 0);
  for (int64_t i = 0; i < a.length; ++i) {
    const int32_t id = a.tokens[i];
    GODWIT_ASSERT(id >= 0 && id < a.history.stride);
    if (i < a.prompt) {
      counts[id] |= sample::kInPrompt;
    } else {
      ++counts[id];
    }
  }
}

}  // namespace godwit::kernels
