#include "kernels/reference/access.h"
#include "kernels/reference/kda_slot.h"
#include "kernels/reference/reference_ops.h"

namespace godwit::kernels::reference {

ConvWindow::ConvWindow(const KdaSlot& slot, int32_t taps, int64_t channels, bool from_zero) : slot_(slot) {
  for (int64_t i = 0; i < taps - 1; ++i) {
    std::vector<double> row(static_cast<size_t>(channels));
    for (int64_t c = 0; c < channels && !from_zero; ++c) {
      row[c] = load(slot.window(), slot.window_dtype(), i * channels + c);
    }
    rows_.push_back(std::move(row));
  }
}

void ConvWindow::push(std::vector<double> raw) {
  rows_.push_back(std::move(raw));
  rows_.pop_front();
}

void ConvWindow::commit() const {
  int64_t i = 0;
  for (const std::vector<double>& row : rows_) {
    for (const double v : row) store(slot_.window(), slot_.window_dtype(), i++, v);
  }
}

void ReferenceOps::kda_conv(const StepView& step, const KdaConv& a) {
  const int64_t channels = a.raw.cols;
  for (int64_t i = 0; i < step.sequences; ++i) {
    const Sequence& s = step.sequence[i];
    const KdaSlot slot(a.state, s.slot);
    ConvWindow window(slot, a.taps, channels, s.first == 0);
    for (int64_t r = 0; r < s.rows; ++r) {
      std::vector<double> raw = read(a.raw, s.row + r);
      // Through the window's type, so that a row's taps do not depend on the step they came in.
      if (a.state.window_dtype == DType::bf16) {
        for (double& v : raw) v = to_float(to_bf16(static_cast<float>(v)));
      }
      for (int64_t c = 0; c < channels; ++c) {
        const float* w = a.weight + c * a.taps;
        double sum = w[a.taps - 1] * raw[c];
        for (int32_t age = 1; age < a.taps; ++age) sum += w[a.taps - 1 - age] * window.back(age)[c];
        put(a.out, s.row + r, c, silu(sum));
        if (s.kind == RowKind::verify) {
          store(slot.pending_raw(), a.state.window_dtype, r * channels + c, raw[c]);
        }
      }
      window.push(std::move(raw));
    }
    if (s.kind != RowKind::verify) window.commit();
  }
}

}  // namespace godwit::kernels::reference
