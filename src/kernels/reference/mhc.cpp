#include <algorithm>

#include "kernels/reference/access.h"
#include "kernels/reference/reference_ops.h"

namespace godwit::kernels::reference {
namespace {

// C [n, n] row-major from its logits: softmax over each row, then the column and row steps of spec §6 (8–10).
void sinkhorn(double* c, int64_t n, double eps, int32_t iterations) {
  const auto column_step = [&] {
    for (int64_t j = 0; j < n; ++j) {
      double sum = eps;
      for (int64_t i = 0; i < n; ++i) sum += c[i * n + j];
      for (int64_t i = 0; i < n; ++i) c[i * n + j] /= sum;
    }
  };
  for (int64_t i = 0; i < n; ++i) {
    double* row = c + i * n;
    const double largest = *std::max_element(row, row + n);
    double sum = 0;
    for (int64_t j = 0; j < n; ++j) sum += row[j] = std::exp(row[j] - largest);
    for (int64_t j = 0; j < n; ++j) row[j] = row[j] / sum + eps;
  }
  column_step();
  for (int32_t step = 1; step < iterations; ++step) {
    for (int64_t i = 0; i < n; ++i) {
      double sum = eps;
      for (int64_t j = 0; j < n; ++j) sum += c[i * n + j];
      for (int64_t j = 0; j < n; ++j) c[i * n + j] /= sum;
    }
    column_step();
  }
}

}  // namespace

void ReferenceOps::mhc_broadcast(const MhcBroadcast& a) {
  const int64_t width = a.x.cols;
  for (int64_t t = 0; t < a.x.rows; ++t) {
    for (int64_t c = 0; c < a.streams.cols; ++c) put(a.streams, t, c, get(a.x, t, c % width));
  }
}

void ReferenceOps::mhc_collapse(const MhcCollapse& a) {
  const int64_t width = a.x.cols;
  const int64_t n = a.streams.cols / width;
  for (int64_t t = 0; t < a.x.rows; ++t) {
    const std::vector<double> f = read(a.streams, t);
    const double mean = dot(f.data(), f.data(), a.streams.cols) / static_cast<double>(a.streams.cols);
    const double r = 1 / std::sqrt(mean + a.norm_eps);
    std::vector<double> m = multiply({a.weights.fn}, f);
    for (int64_t i = 0; i < static_cast<int64_t>(m.size()); ++i) {
      const int64_t part = i < n ? 0 : i < 2 * n ? 1 : 2;
      m[i] = r * m[i] * a.weights.scale[part] + a.weights.base[i];
    }
    for (int64_t c = 0; c < width; ++c) {
      double x = 0;
      for (int64_t i = 0; i < n; ++i) x += (sigmoid(m[i]) + a.hc_eps) * f[i * width + c];
      put(a.x, t, c, x);
    }
    sinkhorn(m.data() + 2 * n, n, a.hc_eps, a.iterations);
    for (int64_t j = 0; j < n; ++j) put(a.mix, t, j, 2 * sigmoid(m[n + j]));
    for (int64_t i = 0; i < n * n; ++i) put(a.mix, t, n + i, m[2 * n + i]);
  }
}

void ReferenceOps::mhc_expand(const MhcExpand& a) {
  const int64_t width = a.y.cols;
  const int64_t n = a.streams.cols / width;
  for (int64_t t = 0; t < a.y.rows; ++t) {
    const std::vector<double> old = read(a.streams, t);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t c = 0; c < width; ++c) {
        double sum = get(a.mix, t, j) * get(a.y, t, c);
        for (int64_t i = 0; i < n; ++i) sum += get(a.mix, t, n + i * n + j) * old[i * width + c];
        put(a.streams, t, j * width + c, sum);
      }
    }
  }
}

void ReferenceOps::mhc_mean(const MhcMean& a) {
  const int64_t width = a.out.cols;
  const int64_t n = a.streams.cols / width;
  for (int64_t t = 0; t < a.out.rows; ++t) {
    for (int64_t c = 0; c < width; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += get(a.streams, t, i * width + c);
      put(a.out, t, c, sum / static_cast<double>(n));
    }
  }
}

}  // namespace godwit::kernels::reference
