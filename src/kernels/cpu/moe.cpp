// Router and routed experts (glm5_next spec §11): rows are grouped by expert, each group runs as small GEMMs,
// and a row's outputs are added in ascending expert id. A row's result does not depend on its group.
#include <cmath>
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/limits.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/moe.cpp"
#include "hwy/foreach_target.h"
// clang-format off
#include "kernels/cpu/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {
namespace {

// out = sum_j weights[j] ys[j], j ascending; zeros when count is 0.
void combine_row(const float* const* ys, const float* weights, int64_t count, int64_t columns, float* out) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < columns; i += lanes) {
    VF sum = hn::Zero(d);
    for (int64_t j = 0; j < count; ++j)
      sum = hn::MulAdd(hn::Set(d, weights[j]), load_some(ys[j] + i, columns - i), sum);
    store_some(sum, out + i, columns - i);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::cpu {

HWY_EXPORT(combine_row);

namespace {

constexpr int64_t kExpertRows = 96;  // rows of one task

// p = sigmoid(logit); the k largest of p + bias, lower id on ties, NaN last; then ascending ids with their
// weights.
void route_row(const float* logits, const kernels::Route& a, int32_t* ids, float* weights) {
  const int64_t experts = a.logits.cols;
  const int64_t k = a.ids.cols;
  int32_t chosen[kMaxExpertsChosen];
  float keys[kMaxExpertsChosen];
  int64_t size = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const float p = 1.0f / (1.0f + std::exp(-logits[e]));
    const float sum = p + a.bias[e];
    const float key = std::isnan(sum) ? -INFINITY : sum;
    if (size == k && !(key > keys[k - 1])) continue;
    int64_t at = size < k ? size++ : k - 1;
    for (; at > 0 && key > keys[at - 1]; --at) {
      keys[at] = keys[at - 1];
      chosen[at] = chosen[at - 1];
    }
    keys[at] = key;
    chosen[at] = static_cast<int32_t>(e);
  }
  std::sort(chosen, chosen + k);
  float sum = 0;
  for (int64_t j = 0; j < k; ++j) {
    weights[j] = 1.0f / (1.0f + std::exp(-logits[chosen[j]]));
    sum += weights[j];
  }
  for (int64_t j = 0; j < k; ++j) {
    ids[j] = chosen[j];
    weights[j] = weights[j] / (sum + 1e-20f) * a.scale;
  }
}

// What the threads share while they run the experts.
struct Groups {
  float* outputs;  // [pairs, D]: pair = t k + j
  int32_t* order;  // [pairs] pairs by expert, rows ascending
  int32_t* first;  // [experts + 1] where an expert's pairs start in `order`
  int32_t* task;   // [experts + 1] its first task
};

Groups carve(float* p, int64_t pairs, int64_t columns, int64_t experts) {
  int32_t* ints = reinterpret_cast<int32_t*>(p + pairs * columns);
  return {p, ints, ints + pairs, ints + pairs + experts + 1};
}

// Counting sort of the pairs by expert. Returns the number of tasks.
int64_t group_pairs(const kernels::Experts& a, const Groups& g) {
  const int64_t k = a.ids.cols;
  std::fill(g.first, g.first + a.expert_count + 1, 0);
  const auto local = [&](int64_t pair) {
    const int32_t e = a.ids.row<int32_t>(pair / k)[pair % k] - a.first_expert;
    return e >= 0 && e < a.expert_count ? e : -1;
  };
  const int64_t pairs = a.x.rows * k;
  for (int64_t pair = 0; pair < pairs; ++pair)
    if (local(pair) >= 0) ++g.first[local(pair) + 1];
  g.task[0] = 0;
  for (int32_t e = 0; e < a.expert_count; ++e) {
    g.task[e + 1] = g.task[e] + static_cast<int32_t>((g.first[e + 1] + kExpertRows - 1) / kExpertRows);
    g.first[e + 1] += g.first[e];
  }
  // Fill using first[e] as the cursor, then shift the cursors back.
  for (int64_t pair = 0; pair < pairs; ++pair)
    if (local(pair) >= 0) g.order[g.first[local(pair)]++] = static_cast<int32_t>(pair);
  for (int32_t e = a.expert_count; e > 0; --e) g.first[e] = g.first[e - 1];
  g.first[0] = 0;
  return g.task[a.expert_count];
}

// One block of one expert's rows: gather, gate and up, SwiGLU, down, to the pairs' outputs.
void expert_block(const kernels::Experts& a, const Groups& g, int64_t task, float* scratch) {
  const int32_t e =
      static_cast<int32_t>(std::upper_bound(g.task, g.task + a.expert_count + 1, task) - g.task) - 1;
  const kernels::ExpertWeights& w = a.experts[e];
  const int64_t first = g.first[e] + (task - g.task[e]) * kExpertRows;
  const int64_t rows = std::min<int64_t>(kExpertRows, g.first[e + 1] - first);
  const int64_t columns = a.x.cols;
  const int64_t inner = w.gate.out();
  float* panel = scratch;
  float* x = panel + kPanelFloats;                    // [rows, D]
  float* gate_up = x + kExpertRows * columns;         // [rows, 2 I]
  float* hidden = gate_up + kExpertRows * 2 * inner;  // [rows, I]
  float* quant = hidden + kExpertRows * inner;        // [rows, max(D, I)]
  for (int64_t r = 0; r < rows; ++r)
    std::memcpy(x + r * columns, a.x.row<float>(g.order[first + r] / a.ids.cols),
                static_cast<size_t>(columns) * sizeof(float));
  const Rows raw{x, columns};
  linear_block(w.gate, quantised_rows(w.gate, raw, rows, quant), rows, 0, inner, gate_up, 2 * inner, panel);
  linear_block(w.up, quantised_rows(w.up, raw, rows, quant), rows, 0, inner, gate_up + inner, 2 * inner,
               panel);
  swiglu_range(
      {make_view(gate_up, DType::f32, rows, 2 * inner), a.limit, make_view(hidden, DType::f32, rows, inner)},
      0, rows);
  const Rows h = quantised_rows(w.down, {hidden, inner}, rows, quant);
  linear_block(w.down, h, rows, 0, columns, x, columns, panel);
  for (int64_t r = 0; r < rows; ++r)
    std::memcpy(g.outputs + g.order[first + r] * columns, x + r * columns,
                static_cast<size_t>(columns) * sizeof(float));
}

void combine(const kernels::Experts& a, const Groups& g, int64_t t) {
  const float* ys[kMaxExpertsChosen];
  float weights[kMaxExpertsChosen];
  int64_t count = 0;
  for (int64_t j = 0; j < a.ids.cols; ++j) {
    const int32_t e = a.ids.row<int32_t>(t)[j] - a.first_expert;
    if (e < 0 || e >= a.expert_count) continue;
    ys[count] = g.outputs + (t * a.ids.cols + j) * a.x.cols;
    weights[count++] = a.weights.row<float>(t)[j];
  }
  HWY_DYNAMIC_DISPATCH(combine_row)(ys, weights, count, a.out.cols, a.out.row<float>(t));
}

}  // namespace

int64_t experts_thread_floats(const Dims& dims) {
  return kPanelFloats +
         kExpertRows * (dims.hidden + 3 * dims.expert_inner + std::max(dims.hidden, dims.expert_inner));
}

int64_t experts_shared_floats(const Dims& dims, const StepLimits& limits) {
  const int64_t pairs = limits.rows * dims.experts_topk;
  return pairs * dims.hidden + pairs + 2 * (dims.experts + 1);
}

void CpuOps::route(const kernels::Route& a) {
  linear({a.x, a.w, a.logits});
  GODWIT_ASSERT(a.ids.cols <= kMaxExpertsChosen && a.ids.cols <= a.logits.cols);
  for_rows(a.x.rows, a.logits.cols * 16, [&](int64_t first, int64_t last, int) {
    for (int64_t t = first; t < last; ++t)
      route_row(a.logits.row<float>(t), a, a.ids.row<int32_t>(t), a.weights.row<float>(t));
  });
}

void CpuOps::experts(const kernels::Experts& a) {
  const int64_t pairs = a.x.rows * a.ids.cols;
  const Groups g = carve(shared_scratch(), pairs, a.x.cols, a.expert_count);
  const int64_t tasks = group_pairs(a, g);
  float* const* scratch = thread_scratch();
  const int64_t inner = a.expert_count > 0 ? a.experts[0].gate.out() : 0;
  pool_.run(tasks, pairs * 3 * a.x.cols * inner,
            [&](int64_t task, int thread) { expert_block(a, g, task, scratch[thread]); });
  for_rows(a.x.rows, a.ids.cols * a.x.cols, [&](int64_t first, int64_t last, int) {
    for (int64_t t = first; t < last; ++t) combine(a, g, t);
  });
}

void CpuOps::ffn(const kernels::Ffn& a) {
  const int64_t inner = a.inner.cols;
  const kernels::Linear gate_up[] = {{a.x, a.gate, a.gate_up.col_range(0, inner)},
                                     {a.x, a.up, a.gate_up.col_range(inner, inner)}};
  linear_many(pool_, gate_up, thread_scratch());
  swiglu({a.gate_up, a.limit, a.inner});
  linear({a.inner, a.down, a.out});
}

}  // namespace godwit::cpu
#endif  // HWY_ONCE
