// Sparse attention over paged latents in absorbed form (glm5_next spec §9.2): two passes over at most topk +
// P
// - 1 tokens, so the scores of a group of heads fit a small buffer.
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/limits.h"
#include "kernels/cpu/paged.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/mla.cpp"
#include "hwy/foreach_target.h"
// clang-format off
#include "kernels/cpu/dots-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {
namespace {

// scores[h][j] = scale q_h · c_j; kHeads query rows of `width`, scores rows `stride` apart. Four tokens at a
// time; tokens past `count` repeat the last.
template <int kHeads, class Row>
HWY_INLINE void score_tokens(const float* q, const kernels::StoredRow* tokens, int64_t count, int64_t width,
                             float scale, float* scores, int64_t stride) {
  const hn::FixedTag<float, 4> d4;
  for (int64_t j = 0; j < count; j += 4) {
    const auto token = [&](int64_t i) { return Row(tokens[j + i < count ? j + i : count - 1]); };
    const Row four[4] = {token(0), token(1), token(2), token(3)};
    V4 dots[kHeads];
    dot_tile<kHeads>(q, four, width, dots);
    // The buffer is rounded up to whole fours.
    for (int h = 0; h < kHeads; ++h)
      hn::StoreU(hn::Mul(dots[h], hn::Set(d4, scale)), d4, scores + h * stride + j);
  }
}

// scores -> e^(score - largest); returns 1 / their sum.
HWY_INLINE float exponentials(float* scores, int64_t count) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  float largest = scores[0];
  for (int64_t j = 1; j < count; ++j) largest = scores[j] > largest ? scores[j] : largest;
  VF sum = hn::Zero(d);
  float tail = 0;
  for (int64_t j = 0; j < count; j += lanes) {
    const VF e = exp_of(hn::Sub(load_some(scores + j, count - j), hn::Set(d, largest)));
    store_some(e, scores + j, count - j);
    if (j + lanes <= count)
      sum = hn::Add(sum, e);
    else
      for (int64_t i = j; i < count; ++i) tail += scores[i];
  }
  return 1.0f / (sum_lanes(sum) + tail);
}

// out_h[c] = factor[h] sum_j p[h][j] c_j[c] for kVectors vectors of columns from c on.
template <int kHeads, int kVectors, class Row>
HWY_INLINE void weigh_columns(const float* p, int64_t stride, const kernels::StoredRow* tokens, int64_t count,
                              int64_t c, int64_t left, const float* factor, float* out, int64_t width) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF sum[kHeads][kVectors];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h)
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) sum[h][i] = hn::Zero(d);
  for (int64_t j = 0; j < count; ++j) {
    const Row token(tokens[j]);
    VF x[kVectors];
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) x[i] = token.load(c + i * lanes, left - i * lanes);
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const VF weight = hn::Set(d, p[h * stride + j]);
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) sum[h][i] = hn::MulAdd(weight, x[i], sum[h][i]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h)
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i)
      store_some(hn::Mul(sum[h][i], hn::Set(d, factor[h])), out + h * width + c + i * lanes,
                 left - i * lanes);
}

template <int kHeads, class Row>
void attend_heads(const float* q, const kernels::StoredRow* tokens, int64_t count, int64_t width, float scale,
                  float* scores, int64_t stride, float* out) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  score_tokens<kHeads, Row>(q, tokens, count, width, scale, scores, stride);
  float factor[kHeads];
  for (int h = 0; h < kHeads; ++h) factor[h] = exponentials(scores + h * stride, count);
  int64_t c = 0;
  for (; c + 4 * lanes <= width; c += 4 * lanes)
    weigh_columns<kHeads, 4, Row>(scores, stride, tokens, count, c, 4 * lanes, factor, out, width);
  for (; c < width; c += lanes)
    weigh_columns<kHeads, 1, Row>(scores, stride, tokens, count, c, width - c, factor, out, width);
}

// `heads` consecutive heads of one row.
template <class Row>
void attend_group(const float* q, const kernels::StoredRow* tokens, int64_t count, int64_t heads,
                  int64_t width, float scale, float* scores, int64_t stride, float* out) {
  int64_t h = 0;
  for (; h + 4 <= heads; h += 4)
    attend_heads<4, Row>(q + h * width, tokens, count, width, scale, scores, stride, out + h * width);
  for (; h + 2 <= heads; h += 2)
    attend_heads<2, Row>(q + h * width, tokens, count, width, scale, scores, stride, out + h * width);
  if (h < heads)
    attend_heads<1, Row>(q + h * width, tokens, count, width, scale, scores, stride, out + h * width);
}

void attend(DType format, const float* q, const kernels::StoredRow* tokens, int64_t count, int64_t heads,
            int64_t width, float scale, float* scores, int64_t stride, float* out) {
  const auto group = format == DType::f32    ? attend_group<ValueRow<float>>
                     : format == DType::bf16 ? attend_group<ValueRow<bf16>>
                                             : attend_group<CodeRow>;
  group(q, tokens, count, heads, width, scale, scores, stride, out);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::cpu {

HWY_EXPORT(attend);

namespace {

int64_t max_tokens(int64_t topk, int64_t pool) {
  return (topk + pool + 3) / 4 * 4;
}

// The latents row t attends to, in ascending position; returns how many.
int64_t gather_tokens(const StepView& step, const kernels::MlaAttend& a, int64_t t,
                      kernels::StoredRow* tokens) {
  const kernels::Sequence& s = step.sequence[step.row_sequence[t]];
  const Paged pages{step, s};
  const int64_t width = a.query.cols / a.heads;
  const auto latent = [&](int64_t position) { return pages.latent(a.cache, position, width); };
  int64_t n = 0;
  const int32_t chosen = *a.count.row<int32_t>(t);
  for (int32_t i = 0; i < chosen; ++i) {
    const int64_t first = static_cast<int64_t>(a.pools.row<int32_t>(t)[i]) * a.pool;
    for (int64_t j = 0; j < a.pool; ++j) tokens[n++] = latent(first + j);
  }
  const int64_t position = s.first + t - s.row;
  for (int64_t tail = (position + 1) / a.pool * a.pool; tail <= position; ++tail) tokens[n++] = latent(tail);
  return n;
}

}  // namespace

int64_t mla_thread_floats(const Dims& dims) {
  if (dims.index_pool == 0) return 0;
  const int64_t tokens = max_tokens(dims.index_topk, dims.index_pool);
  return tokens * 4 + tokens * static_cast<int64_t>(sizeof(kernels::StoredRow) / sizeof(float));
}

void CpuOps::mla_attend(const StepView& step, const kernels::MlaAttend& a) {
  const int64_t width = a.query.cols / a.heads;
  const int64_t tokens = max_tokens(a.pools.cols * a.pool, a.pool);
  GODWIT_ASSERT(tokens <= max_tokens(dims_.index_topk, dims_.index_pool));
  // Few rows: heads are spread over threads too. A head's bits do not depend on its group.
  const int64_t group = step.rows >= 2 * pool_.threads() ? a.heads : std::min<int64_t>(a.heads, 2);
  const int64_t groups = (a.heads + group - 1) / group;
  float* const* scratch = thread_scratch();
  int64_t attended = 0;
  for (int64_t t = 0; t < step.rows; ++t) attended += *a.count.row<int32_t>(t) * a.pool + a.pool;
  pool_.run(step.rows * groups, attended * a.query.cols * 2, [&](int64_t task, int thread) {
    const int64_t t = task / groups;
    const int64_t head = task % groups * group;
    float* scores = scratch[thread];
    auto* latents = reinterpret_cast<kernels::StoredRow*>(scores + 4 * tokens);
    const int64_t count = gather_tokens(step, a, t, latents);
    HWY_DYNAMIC_DISPATCH(attend)
    (a.cache.latent_dtype, a.query.row<float>(t) + head * width, latents, count,
     std::min(group, a.heads - head), width, a.scale, scores, tokens, a.out.row<float>(t) + head * width);
  });
}

}  // namespace godwit::cpu
#endif  // HWY_ONCE
