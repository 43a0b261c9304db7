#include "kernels/cpu/linear.h"

#include <algorithm>

#include "base/assert.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear.cpp"
#include "hwy/foreach_target.h"
// clang-format off
#include "kernels/cpu/linear-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {
namespace {

// Below this many rows the weights are widened in registers; from it on once per panel.
constexpr int64_t kPanelRows = 12;

template <class P>
void direct(const P& weights, Rows x, int64_t rows, int64_t first, int64_t last, float* out, int64_t stride) {
  const int64_t k = weights.columns();
  int64_t t = 0;
  for (; t + 4 <= rows; t += 4)
    tiles<4, 4>(weights, x.data + t * x.stride, x.stride, k, first, last, out + t * stride, stride);
  for (; t + 2 <= rows; t += 2)
    tiles<2, 4>(weights, x.data + t * x.stride, x.stride, k, first, last, out + t * stride, stride);
  if (t < rows)
    tiles<1, 8>(weights, x.data + t * x.stride, x.stride, k, first, last, out + t * stride, stride);
}

template <class P>
void paneled(const P& weights, Rows x, int64_t rows, int64_t first, int64_t last, float* out, int64_t stride,
             float* panel) {
  constexpr int kRows = HWY_MAX_BYTES == 64 ? 6 : 2;
  const int64_t k = weights.columns();
  const int64_t padded = (k + 15) / 16 * 16;
  // 24 KB of panel and the rows of a tile stay in L1.
  const int64_t width = std::clamp<int64_t>(6 * 1024 / padded / 4 * 4, 4, 64);
  for (int64_t n = first; n < last; n += width) {
    const int64_t columns = std::min(width, last - n);
    for (int64_t c = 0; c < columns; ++c) weights.widen_row(n + c, panel + c * padded, padded);
    const F32Rows wide{panel, k, padded};
    int64_t t = 0;
    for (; t + kRows <= rows; t += kRows)
      tiles<kRows, 4>(wide, x.data + t * x.stride, x.stride, k, 0, columns, out + t * stride + n, stride);
    direct(wide, {x.data + t * x.stride, x.stride}, rows - t, 0, columns, out + t * stride + n, stride);
  }
}

template <class P>
void block(const P& weights, Rows x, int64_t rows, int64_t first, int64_t last, float* out, int64_t stride,
           float* panel) {
  if (rows < kPanelRows || weights.columns() > kPanelFloats / 4)
    direct(weights, x, rows, first, last, out, stride);
  else
    paneled(weights, x, rows, first, last, out, stride, panel);
}

void linear_block_target(const Weight& w, Rows x, int64_t rows, int64_t first, int64_t last, float* out,
                         int64_t stride, float* panel) {
  switch (w.data.dtype) {
    case DType::f32:
      return block(F32Rows{w.data.row<float>(0), w.in(), w.data.stride}, x, rows, first, last, out, stride,
                   panel);
    case DType::bf16:
      return block(Bf16Rows{w.data.row<bf16>(0), w.in(), w.data.stride}, x, rows, first, last, out, stride,
                   panel);
    default:
      GODWIT_ASSERT(w.data.dtype == DType::f8_e4m3);
      return block(F8Rows{w.data.row<uint8_t>(0), w.in(), w.data.stride, w.scales, w.scale_stride}, x, rows,
                   first, last, out, stride, panel);
  }
}

void quantise_target(Rows x, int64_t rows, int64_t columns, float* out) {
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t k = 0; k < columns; k += kFp8Block)
      quantise_group(x.data + t * x.stride + k, std::min(kFp8Block, columns - k), out + t * columns + k);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::cpu {

HWY_EXPORT(linear_block_target);
HWY_EXPORT(quantise_target);

void linear_block(const Weight& w, Rows x, int64_t rows, int64_t first, int64_t last, float* out,
                  int64_t out_stride, float* panel) {
  HWY_DYNAMIC_DISPATCH(linear_block_target)(w, x, rows, first, last, out, out_stride, panel);
}

Rows quantised_rows(const Weight& w, Rows x, int64_t rows, float* out) {
  if (w.data.dtype != DType::f8_e4m3) return x;
  HWY_DYNAMIC_DISPATCH(quantise_target)(x, rows, w.in(), out);
  return {out, w.in()};
}

namespace {

constexpr int kMaxLinears = 16;

// How one product is cut: blocks of rows times chunks of weight rows.
struct Cut {
  int64_t row_blocks, rows_per_block;
  int64_t chunks, columns_per_chunk;
  int64_t tasks() const { return row_blocks * chunks; }
};

Cut cut_of(const kernels::Linear& a, int threads) {
  Cut c{};
  c.rows_per_block = kRowBlock;
  if (a.w.data.dtype == DType::f8_e4m3) {
    GODWIT_ASSERT(a.w.in() <= kQuantFloats);
    c.rows_per_block = std::min(kRowBlock, kQuantFloats / a.w.in());
  }
  c.row_blocks = (a.x.rows + c.rows_per_block - 1) / c.rows_per_block;
  // A task of at least 16 K weights: 2 us for one row.
  const int64_t widest = std::max<int64_t>(1, a.w.out() * a.w.in() / (16 * 1024));
  const int64_t wanted = std::max<int64_t>(1, 4 * threads / c.row_blocks);
  const int64_t chunks = std::min(widest, wanted);
  c.columns_per_chunk = ((a.w.out() + chunks - 1) / chunks + 7) / 8 * 8;
  c.chunks = (a.w.out() + c.columns_per_chunk - 1) / c.columns_per_chunk;
  return c;
}

void do_task(const kernels::Linear& a, const Cut& c, int64_t task, LinearScratch scratch) {
  const int64_t row = task / c.chunks * c.rows_per_block;
  const int64_t rows = std::min(c.rows_per_block, a.x.rows - row);
  const int64_t first = task % c.chunks * c.columns_per_chunk;
  const int64_t last = std::min(first + c.columns_per_chunk, a.w.out());
  const Rows x = quantised_rows(a.w, {a.x.row<float>(row), a.x.stride}, rows, scratch.quant);
  linear_block(a.w, x, rows, first, last, a.out.row<float>(row), a.out.stride, scratch.panel);
}

}  // namespace

void linear_many(Pool& pool, std::span<const kernels::Linear> linears, float* const* thread_scratch) {
  GODWIT_ASSERT(linears.size() <= kMaxLinears);
  Cut cuts[kMaxLinears];
  int64_t tasks = 0;
  int64_t work = 0;
  for (size_t i = 0; i < linears.size(); ++i) {
    const kernels::Linear& a = linears[i];
    GODWIT_ASSERT(a.x.dtype == DType::f32 && a.out.dtype == DType::f32);
    cuts[i] = a.x.rows == 0 || a.w.out() == 0 ? Cut{} : cut_of(a, pool.threads());
    tasks += cuts[i].tasks();
    work += a.x.rows * a.w.out() * a.w.in();
  }
  pool.run(tasks, work, [&](int64_t task, int thread) {
    size_t i = 0;
    for (; task >= cuts[i].tasks(); ++i) task -= cuts[i].tasks();
    do_task(linears[i], cuts[i], task, linear_scratch(thread_scratch[thread]));
  });
}

}  // namespace godwit::cpu
#endif  // HWY_ONCE
