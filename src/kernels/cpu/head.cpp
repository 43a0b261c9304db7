// The draw: rows are independent, so they spread over threads; rows of one slot (a verify) keep their order,
// because each counts in the history of the next.
#include "kernels/cpu/cpu_ops.h"
#include "kernels/sample_rows.h"

namespace godwit::cpu {

int64_t sample_thread_floats(const Dims& dims) {
  return dims.vocab * static_cast<int64_t>(sizeof(godwit::sample::Candidate) / sizeof(float));
}

void CpuOps::history_start(const kernels::HistoryStart& a) {
  kernels::start_history(a);
}

void CpuOps::sample(const kernels::Sample& a) {
  const int64_t rows = a.logits.rows;
  float* const* scratch = thread_scratch();
  pool_.run(rows, rows * a.logits.cols * 8, [&](int64_t first, int thread) {
    const int32_t slot = a.rows[first].slot;
    if (first > 0 && a.rows[first - 1].slot == slot) return;
    auto* workspace = reinterpret_cast<godwit::sample::Candidate*>(scratch[thread]);
    for (int64_t i = first; i < rows && a.rows[i].slot == slot; ++i) kernels::sample_one(a, i, workspace);
  });
}

}  // namespace godwit::cpu
