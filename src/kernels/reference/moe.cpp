#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/reference/access.h"
#include "kernels/reference/reference_ops.h"

namespace godwit::kernels::reference {
namespace {

constexpr double kWeightSumEps = 1e-20;

// down(swiglu(gate x, up x)), not rounded. The inner row is f32 like the scratch of a dense FFN, so that the
// quantiser of an FP8 down projection sees the same values.
std::vector<double> expert_output(const ExpertWeights& e, const std::vector<double>& x, double limit) {
  const std::vector<double> gate = multiply(e.gate, x);
  const std::vector<double> up = multiply(e.up, x);
  std::vector<double> inner(gate.size());
  for (size_t i = 0; i < inner.size(); ++i) {
    inner[i] =
        static_cast<float>(clamped_swiglu(static_cast<float>(gate[i]), static_cast<float>(up[i]), limit));
  }
  return multiply(e.down, inner);
}

}  // namespace

void ReferenceOps::route(const Route& a) {
  const int64_t experts = a.w.out();
  const int64_t chosen = a.ids.cols;
  for (int64_t t = 0; t < a.x.rows; ++t) {
    write(a.logits, t, multiply(a.w, read(a.x, t)));
    // f32 as the contract says: the choice must see the values a backend sees.
    std::vector<float> p(static_cast<size_t>(experts));
    std::vector<float> choice(static_cast<size_t>(experts));
    for (int64_t e = 0; e < experts; ++e) {
      p[e] = static_cast<float>(sigmoid(get(a.logits, t, e)));
      choice[e] = p[e] + a.bias[e];
      if (std::isnan(choice[e])) choice[e] = -std::numeric_limits<float>::infinity();
    }
    std::vector<int32_t> order(static_cast<size_t>(experts));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t x, int32_t y) { return choice[x] > choice[y]; });
    std::sort(order.begin(), order.begin() + chosen);
    double sum = kWeightSumEps;
    for (int64_t i = 0; i < chosen; ++i) sum += p[order[i]];
    for (int64_t i = 0; i < chosen; ++i) {
      a.ids.row<int32_t>(t)[i] = order[i];
      put(a.weights, t, i, p[order[i]] / sum * a.scale);
    }
  }
}

void ReferenceOps::experts(const Experts& a) {
  for (int64_t t = 0; t < a.x.rows; ++t) {
    const std::vector<double> x = read(a.x, t);
    std::vector<double> sum(static_cast<size_t>(a.out.cols));
    for (int64_t i = 0; i < a.ids.cols; ++i) {
      const int64_t local = a.ids.row<int32_t>(t)[i] - a.first_expert;
      if (local < 0 || local >= a.expert_count) continue;
      const std::vector<double> y = expert_output(a.experts[local], x, a.limit);
      for (size_t c = 0; c < sum.size(); ++c) sum[c] += get(a.weights, t, i) * y[c];
    }
    write(a.out, t, sum);
  }
}

}  // namespace godwit::kernels::reference
