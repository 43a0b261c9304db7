// mHC: expand, mapping, collapse (glm5_next spec §6). The mapping runs with one row per lane, so that 39
// Sinkhorn steps cost 16 rows what they cost one.
#include <cmath>
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/limits.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/mhc.cpp"
#include "hwy/foreach_target.h"
// clang-format off
#include "kernels/cpu/rows-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {
namespace {

// C of up to Lanes rows through the Sinkhorn steps: softmax + eps, column step, then (row step, column step)
// iterations - 1 times (trap T3). kStreams = n where the compiler should keep C in registers.
template <int kStreams>
HWY_INLINE void sinkhorn(VF* c, int64_t runtime_n, float eps, int32_t iterations) {
  const F32 d;
  const int64_t n = kStreams > 0 ? kStreams : runtime_n;
  const VF veps = hn::Set(d, eps);
  const VF one = hn::Set(d, 1.0f);
  VF m[kStreams > 0 ? kStreams * kStreams : kMaxStreams * kMaxStreams];
#pragma GCC unroll 16
  for (int64_t i = 0; i < n * n; ++i) m[i] = c[i];
#pragma GCC unroll 4
  for (int64_t i = 0; i < n; ++i) {
    VF largest = m[i * n];
#pragma GCC unroll 4
    for (int64_t j = 1; j < n; ++j) largest = hn::Max(largest, m[i * n + j]);
    VF sum = hn::Zero(d);
#pragma GCC unroll 4
    for (int64_t j = 0; j < n; ++j) {
      m[i * n + j] = exp_of(hn::Sub(m[i * n + j], largest));
      sum = hn::Add(sum, m[i * n + j]);
    }
#pragma GCC unroll 4
    for (int64_t j = 0; j < n; ++j) m[i * n + j] = hn::Add(hn::Div(m[i * n + j], sum), veps);
  }
  // Divides line i by its sum: columns are `along` = n apart, rows 1.
  const auto divide = [&](int64_t first, int64_t along) HWY_ATTR {
    VF sum = veps;
#pragma GCC unroll 4
    for (int64_t j = 0; j < n; ++j) sum = hn::Add(sum, m[first + j * along]);
    const VF factor = hn::Div(one, sum);
#pragma GCC unroll 4
    for (int64_t j = 0; j < n; ++j) m[first + j * along] = hn::Mul(m[first + j * along], factor);
  };
  for (int32_t step = 0; step < iterations; ++step) {
    if (step > 0) {
#pragma GCC unroll 4
      for (int64_t i = 0; i < n; ++i) divide(i * n, 1);
    }
#pragma GCC unroll 4
    for (int64_t j = 0; j < n; ++j) divide(j, n);
  }
#pragma GCC unroll 16
  for (int64_t i = 0; i < n * n; ++i) c[i] = m[i];
}

// m [rows, 2n + n^2] = fn · f, not yet scaled by r. Writes mix [rows, n + n^2] and pre [rows, n].
void map_rows(const kernels::MhcCollapse& a, int64_t first, int64_t rows, const float* m, float* pre) {
  const F32 d;
  const int64_t n = a.streams.cols / a.x.cols;
  const int64_t width = 2 * n + n * n;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* base = a.weights.base;
  const float* scale = a.weights.scale;
  for (int64_t t = 0; t < rows; t += lanes) {
    const int64_t some = rows - t < lanes ? rows - t : lanes;
    HWY_ALIGN float column[hn::MaxLanes(F32())] = {};
    for (int64_t l = 0; l < some; ++l) {
      const float* f = a.streams.row<float>(first + t + l);
      const float mean = sum_of_squares(f, a.streams.cols) / static_cast<float>(a.streams.cols);
      column[l] = 1.0f / std::sqrt(mean + a.norm_eps);
    }
    const VF r = hn::Load(d, column);
    // z of mapping row i for all lanes
    const auto mapped = [&](int64_t i, float s) HWY_ATTR {
      for (int64_t l = 0; l < some; ++l) column[l] = m[(t + l) * width + i];
      return hn::MulAdd(hn::Mul(r, hn::Load(d, column)), hn::Set(d, s), hn::Set(d, base[i]));
    };
    const auto scatter = [&](VF v, float* to, int64_t stride) HWY_ATTR {
      hn::Store(v, d, column);
      for (int64_t l = 0; l < some; ++l) to[l * stride] = column[l];
    };
    float* mix = a.mix.row<float>(first + t);
    for (int64_t i = 0; i < n; ++i) {
      scatter(hn::Add(sigmoid_of(mapped(i, scale[0])), hn::Set(d, a.hc_eps)), pre + t * n + i, n);
      scatter(hn::Mul(hn::Set(d, 2.0f), sigmoid_of(mapped(n + i, scale[1]))), mix + i, a.mix.stride);
    }
    VF c[kMaxStreams * kMaxStreams];
    for (int64_t i = 0; i < n * n; ++i) c[i] = mapped(2 * n + i, scale[2]);
    if (n == 4)
      sinkhorn<4>(c, n, a.hc_eps, a.iterations);
    else
      sinkhorn<0>(c, n, a.hc_eps, a.iterations);
    for (int64_t i = 0; i < n * n; ++i) scatter(c[i], mix + n + i, a.mix.stride);
  }
}

void collapse_rows(const kernels::MhcCollapse& a, int64_t first, int64_t rows, const float* pre) {
  const F32 d;
  const int64_t width = a.x.cols;
  const int64_t n = a.streams.cols / width;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t t = 0; t < rows; ++t) {
    const float* f = a.streams.row<float>(first + t);
    float* x = a.x.row<float>(first + t);
    for (int64_t i = 0; i < width; i += lanes) {
      VF sum = hn::Zero(d);
      for (int64_t s = 0; s < n; ++s)
        sum = hn::MulAdd(hn::Set(d, pre[t * n + s]), load_some(f + s * width + i, width - i), sum);
      store_some(sum, x + i, width - i);
    }
  }
}

void expand_rows(const kernels::MhcExpand& a, int64_t first, int64_t last) {
  const F32 d;
  const int64_t width = a.y.cols;
  const int64_t n = a.streams.cols / width;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t t = first; t < last; ++t) {
    const float* post = a.mix.row<float>(t);
    const float* c = post + n;
    const float* y = a.y.row<float>(t);
    float* streams = a.streams.row<float>(t);
    for (int64_t i = 0; i < width; i += lanes) {
      VF old[kMaxStreams];
      for (int64_t s = 0; s < n; ++s) old[s] = load_some(streams + s * width + i, width - i);
      const VF vy = load_some(y + i, width - i);
      for (int64_t j = 0; j < n; ++j) {
        VF sum = hn::Mul(hn::Set(d, post[j]), vy);
        for (int64_t s = 0; s < n; ++s) sum = hn::MulAdd(hn::Set(d, c[s * n + j]), old[s], sum);
        store_some(sum, streams + j * width + i, width - i);
      }
    }
  }
}

void mean_rows(const kernels::MhcMean& a, int64_t first, int64_t last) {
  const F32 d;
  const int64_t width = a.out.cols;
  const int64_t n = a.streams.cols / width;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF factor = hn::Set(d, 1.0f / static_cast<float>(n));
  for (int64_t t = first; t < last; ++t) {
    const float* f = a.streams.row<float>(t);
    float* out = a.out.row<float>(t);
    for (int64_t i = 0; i < width; i += lanes) {
      VF sum = load_some(f + i, width - i);
      for (int64_t s = 1; s < n; ++s) sum = hn::Add(sum, load_some(f + s * width + i, width - i));
      store_some(hn::Mul(sum, factor), out + i, width - i);
    }
  }
}

void norm_rows(const kernels::MhcBoundary& a, int64_t first, int64_t last) {
  for (int64_t t = first; t < last; ++t)
    rms_row(a.collapse.x.row<float>(t), a.norm_weight, a.collapse.norm_eps, a.normed.cols,
            a.normed.row<float>(t));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::cpu {

HWY_EXPORT(map_rows);
HWY_EXPORT(collapse_rows);
HWY_EXPORT(expand_rows);
HWY_EXPORT(mean_rows);
HWY_EXPORT(norm_rows);

namespace {

// Rows of one pass of the mapping: whole vectors of lanes, and enough for the widened panel to pay.
constexpr int64_t kMapRows = 48;

void collapse_range(const kernels::MhcCollapse& a, int64_t first, int64_t last, float* scratch) {
  const int64_t n = a.streams.cols / a.x.cols;
  const int64_t width = 2 * n + n * n;
  float* panel = scratch;
  float* m = panel + kPanelFloats;    // [kMapRows, 2n + n^2]
  float* pre = m + kMapRows * width;  // [kMapRows, n]
  for (int64_t t = first; t < last; t += kMapRows) {
    const int64_t rows = std::min(kMapRows, last - t);
    linear_block(Weight{a.weights.fn}, {a.streams.row<float>(t), a.streams.stride}, rows, 0, width, m, width,
                 panel);
    HWY_DYNAMIC_DISPATCH(map_rows)(a, t, rows, m, pre);
    HWY_DYNAMIC_DISPATCH(collapse_rows)(a, t, rows, pre);
  }
}

int64_t collapse_work(const kernels::MhcCollapse& a) {
  return a.streams.cols * (a.weights.fn.rows + 4) + 4096;
}

}  // namespace

int64_t mhc_thread_floats(const Dims& dims) {
  return kPanelFloats + kMapRows * (3 * dims.streams + dims.streams * dims.streams);
}

void CpuOps::mhc_broadcast(const kernels::MhcBroadcast& a) {
  const int64_t n = a.streams.cols / a.x.cols;
  for_rows(a.x.rows, a.streams.cols, [&](int64_t first, int64_t last, int) {
    for (int64_t t = first; t < last; ++t)
      for (int64_t s = 0; s < n; ++s)
        std::memcpy(a.streams.row<float>(t) + s * a.x.cols, a.x.row<float>(t),
                    static_cast<size_t>(a.x.cols) * sizeof(float));
  });
}

void CpuOps::mhc_collapse(const kernels::MhcCollapse& a) {
  float* const* scratch = thread_scratch();
  for_rows(a.x.rows, collapse_work(a),
           [&](int64_t first, int64_t last, int thread) { collapse_range(a, first, last, scratch[thread]); });
}

void CpuOps::mhc_expand(const kernels::MhcExpand& a) {
  for_rows(a.y.rows, a.streams.cols * 5, [&](int64_t first, int64_t last, int) {
    HWY_DYNAMIC_DISPATCH(expand_rows)(a, first, last);
  });
}

void CpuOps::mhc_mean(const kernels::MhcMean& a) {
  for_rows(a.out.rows, a.streams.cols, [&](int64_t first, int64_t last, int) {
    HWY_DYNAMIC_DISPATCH(mean_rows)(a, first, last);
  });
}

void CpuOps::mhc_boundary(const kernels::MhcBoundary& a) {
  float* const* scratch = thread_scratch();
  for_rows(a.collapse.x.rows, collapse_work(a.collapse) + a.collapse.streams.cols * 5,
           [&](int64_t first, int64_t last, int thread) {
             if (!a.expand.y.empty()) HWY_DYNAMIC_DISPATCH(expand_rows)(a.expand, first, last);
             collapse_range(a.collapse, first, last, scratch[thread]);
             HWY_DYNAMIC_DISPATCH(norm_rows)(a, first, last);
           });
}

}  // namespace godwit::cpu
#endif  // HWY_ONCE
