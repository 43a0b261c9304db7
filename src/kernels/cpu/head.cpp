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
    const auto drawn_after = [&](int64_t i) {  // row i goes on where a draw of the same slot stopped
      return i > 0 && i < rows && a.rows[i - 1].slot == a.rows[i].slot && a.rows[i - 1].scored < 0;
    };
    if (drawn_after(first)) return;
    auto* workspace = reinterpret_cast<godwit::sample::Candidate*>(scratch[thread]);
    int64_t i = first;
    do kernels::sample_one(a, i++, workspace);
    while (drawn_after(i));
  });
}

}  // namespace godwit::cpu
