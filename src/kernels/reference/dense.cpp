#include <algorithm>

#include "kernels/quantize.h"
#include "kernels/reference/access.h"
#include "kernels/reference/reference_ops.h"

namespace godwit::kernels::reference {
namespace {

std::vector<double> multiply_fp8(const Weight& w, const std::vector<double>& x) {
  const int64_t columns = w.in();
  const std::vector<float> exact(x.begin(), x.end());
  std::vector<f8_e4m3> codes(static_cast<size_t>(columns));
  std::vector<float> scales(static_cast<size_t>(fp8_groups(columns)));
  quantize_row(exact.data(), columns, codes.data(), scales.data());
  std::vector<double> out(static_cast<size_t>(w.out()));
  for (int64_t n = 0; n < w.out(); ++n) {
    const auto* row = w.data.row<f8_e4m3>(n);
    const float* weight_scales = w.scales + n / kFp8Block * w.scale_stride;
    for (int64_t g = 0; g < fp8_groups(columns); ++g) {
      double sum = 0;
      for (int64_t k = g * kFp8Block; k < std::min(columns, (g + 1) * kFp8Block); ++k) {
        sum += static_cast<double>(to_float(row[k])) * to_float(codes[k]);
      }
      out[n] += sum * weight_scales[g] * scales[g];
    }
  }
  return out;
}

}  // namespace

std::vector<double> multiply(const Weight& w, const std::vector<double>& x) {
  GODWIT_ASSERT(static_cast<int64_t>(x.size()) == w.in());
  if (w.data.dtype == DType::f8_e4m3) return multiply_fp8(w, x);
  std::vector<double> out(static_cast<size_t>(w.out()));
  for (int64_t n = 0; n < w.out(); ++n) {
    for (int64_t k = 0; k < w.in(); ++k) out[n] += get(w.data, n, k) * x[k];
  }
  return out;
}

double clamped_swiglu(double gate, double up, double limit) {
  return silu(std::min(gate, limit)) * std::clamp(up, -limit, limit);
}

void ReferenceOps::embed(const StepView& step, const Embed& a) {
  for (int64_t t = 0; t < step.rows; ++t) {
    int32_t id = step.ids[t];
    if (id == kFromSlot) id = a.last_token[step.sequence[step.row_sequence[t]].slot];
    const int64_t local = id - a.first_id;
    const bool mine = local >= 0 && local < a.table.out();
    for (int64_t c = 0; c < a.out.cols; ++c) put(a.out, t, c, mine ? get(a.table.data, local, c) : 0.0);
  }
}

void ReferenceOps::rms_norm(const RmsNorm& a) {
  for (int64_t t = 0; t < a.x.rows; ++t) {
    std::vector<double> x = read(a.x, t);
    const double mean = dot(x.data(), x.data(), a.x.cols) / static_cast<double>(a.x.cols);
    for (int64_t c = 0; c < a.x.cols; ++c) x[c] *= a.weight[c] / std::sqrt(mean + a.eps);
    write(a.out, t, x);
  }
}

void ReferenceOps::layer_norm(const LayerNorm& a) {
  const auto n = static_cast<double>(a.x.cols);
  for (int64_t t = 0; t < a.x.rows; ++t) {
    std::vector<double> x = read(a.x, t);
    double mean = 0;
    for (const double v : x) mean += v / n;
    for (double& v : x) v -= mean;
    const double variance = dot(x.data(), x.data(), a.x.cols) / n;
    for (int64_t c = 0; c < a.x.cols; ++c) {
      x[c] = a.weight[c] * x[c] / std::sqrt(variance + a.eps) + a.bias[c];
    }
    write(a.out, t, x);
  }
}

void ReferenceOps::linear(const Linear& a) {
  for (int64_t t = 0; t < a.x.rows; ++t) write(a.out, t, multiply(a.w, read(a.x, t)));
}

void ReferenceOps::head_linear(const HeadLinear& a) {
  const int64_t in = a.w.cols;
  const int64_t out = a.w.rows / a.heads;
  for (int64_t t = 0; t < a.x.rows; ++t) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const Weight w{a.w.row_range(h * out, out)};
      write(a.out.col_range(h * out, out), t, multiply(w, read(a.x, t, h * in, in)));
    }
  }
}

void ReferenceOps::swiglu(const SwiGlu& a) {
  const int64_t inner = a.out.cols;
  for (int64_t t = 0; t < a.out.rows; ++t) {
    for (int64_t i = 0; i < inner; ++i) {
      put(a.out, t, i, clamped_swiglu(get(a.gate_up, t, i), get(a.gate_up, t, inner + i), a.limit));
    }
  }
}

void ReferenceOps::add(const Add& a) {
  for (int64_t t = 0; t < a.out.rows; ++t) {
    for (int64_t c = 0; c < a.out.cols; ++c) put(a.out, t, c, get(a.a, t, c) + get(a.b, t, c));
  }
}

void ReferenceOps::gather_rows(const GatherRows& a) {
  for (int64_t i = 0; i < a.out.rows; ++i) write(a.out, i, read(a.x, a.rows[i]));
}

}  // namespace godwit::kernels::reference
