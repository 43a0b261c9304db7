#include "kernels/reference/reference_ops.h"
#include "kernels/sample_rows.h"

namespace godwit::kernels::reference {

void ReferenceOps::history_start(const HistoryStart& a) {
  start_history(a);
}

void ReferenceOps::sample(const Sample& a) {
  std::vector<sample::Candidate> workspace(static_cast<size_t>(a.logits.cols));
  for (int64_t r = 0; r < a.logits.rows; ++r) sample_one(a, r, workspace.data());
}

}  // namespace godwit::kernels::reference
