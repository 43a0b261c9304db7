// Latent and index caches and the k-pool indexer (glm5_next spec §10): pools are formed as their last token
// arrives; selection scans scores in tiles with a running top-k, so its workspace does not grow with context.
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/limits.h"
#include "kernels/cpu/paged.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dsa_index.cpp"
#include "hwy/foreach_target.h"
// clang-format off
#include "kernels/cpu/dots-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {
namespace {

// out[d] = sum_s softmax_s(gate_s[d] + ape[s, d]) key_s[d]; entries[s] = [2, dim] key then gate.
void pool_keys(const float* const* entries, const float* ape, int64_t pool, int64_t dim, float* out) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < dim; i += lanes) {
    const int64_t left = dim - i;
    const auto logit = [&](int64_t s) HWY_ATTR {
      return hn::Add(load_some(entries[s] + dim + i, left), load_some(ape + s * dim + i, left));
    };
    VF largest = logit(0);
    for (int64_t s = 1; s < pool; ++s) largest = hn::Max(largest, logit(s));
    VF weights = hn::Zero(d);
    VF sum = hn::Zero(d);
    for (int64_t s = 0; s < pool; ++s) {
      const VF e = exp_of(hn::Sub(logit(s), largest));
      weights = hn::Add(weights, e);
      sum = hn::MulAdd(e, load_some(entries[s] + i, left), sum);
    }
    store_some(hn::Div(sum, weights), out + i, left);
  }
}

// scores[i] = sum_h weight[h] relu(q_h · key_i) for `count` consecutive pooled keys of one page. Heads in
// order, four keys at a time; every key's sums have the same order.
template <class T>
HWY_INLINE void score_keys(const float* q, const float* weight, int64_t heads, int64_t dim, const T* keys,
                           int64_t count, float* scores) {
  const hn::FixedTag<float, 4> d4;
  for (int64_t i = 0; i < count; i += 4) {
    const T* key[4];
    for (int64_t j = 0; j < 4; ++j) key[j] = keys + (i + j < count ? i + j : count - 1) * dim;
    V4 total = hn::Zero(d4);
    V4 dots[4];
    int64_t h = 0;
    const auto weigh = [&](int64_t head, V4 dot) HWY_ATTR {
      total = hn::MulAdd(hn::Set(d4, weight[head]), hn::Max(hn::Zero(d4), dot), total);
    };
    for (; h + 4 <= heads; h += 4) {
      dot_tile<4>(q + h * dim, key, dim, dots);
      for (int64_t j = 0; j < 4; ++j) weigh(h + j, dots[j]);
    }
    for (; h < heads; ++h) {
      dot_tile<1>(q + h * dim, key, dim, dots);
      weigh(h, dots[0]);
    }
    HWY_ALIGN float four[4];
    hn::Store(total, d4, four);
    for (int64_t j = 0; j < 4 && i + j < count; ++j) scores[i + j] = four[j];
  }
}

void score_page(const float* q, const float* weight, int64_t heads, int64_t dim, const std::byte* keys,
                DType dtype, int64_t count, float* scores) {
  if (dtype == DType::f32)
    score_keys(q, weight, heads, dim, reinterpret_cast<const float*>(keys), count, scores);
  else
    score_keys(q, weight, heads, dim, reinterpret_cast<const bf16*>(keys), count, scores);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::cpu {

HWY_EXPORT(pool_keys);
HWY_EXPORT(score_page);

namespace {

constexpr int64_t kSlack = 256;          // candidates collected between two cuts of the running top-k
constexpr int64_t kTilePools = 1024;     // scored at a time
constexpr int64_t kSharedPools = 16384;  // one row's scores when all threads score for it

void store_row(std::byte* to, DType dtype, const float* from, int64_t n) {
  if (dtype == DType::f32) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < n; ++i) reinterpret_cast<bf16*>(to)[i] = to_bf16(from[i]);
}

// One word that orders candidates: higher score first, then lower pool. NaN is below every score.
uint64_t candidate(float score, int64_t pool) {
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 and 0 are a tie
  const uint32_t ordered = score != score ? 0 : (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(ordered) << 32 | (0xffffffffu - static_cast<uint32_t>(pool));
}

// The best `keep` of a stream of candidates in ascending pool order. Holds keep + kSlack words.
class TopK {
 public:
  TopK(uint64_t* words, int64_t keep) : words_(words), keep_(keep) {}

  void add(const float* scores, int64_t first_pool, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t c = candidate(scores[i], first_pool + i);
      if (c <= least_) continue;
      words_[size_++] = c;
      if (size_ == keep_ + kSlack) cut();
    }
  }
  // Ascending pools at `out`.
  int64_t finish(int32_t* out) {
    if (size_ > keep_) cut();
    for (int64_t i = 0; i < size_; ++i)
      out[i] = static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(words_[i]));
    std::sort(out, out + size_);
    return size_;
  }

 private:
  void cut() {
    std::nth_element(words_, words_ + keep_ - 1, words_ + size_, std::greater<>());
    least_ = words_[keep_ - 1];
    size_ = keep_;
  }

  uint64_t* words_;
  int64_t keep_;
  int64_t size_ = 0;
  uint64_t least_ = 0;
};

// Scores of pools [first, last) of row t at `scores`.
void score_range(const kernels::IndexSelect& a, const Paged& pages, int64_t t, int64_t first, int64_t last,
                 float* scores) {
  const int64_t pools_per_page = kernels::kPageTokens / a.pool;
  const int64_t dim = a.query.cols / a.heads;
  float weight[kMaxIndexHeads];
  for (int64_t h = 0; h < a.heads; ++h) weight[h] = a.scale * a.weight.row<float>(t)[h];
  for (int64_t p = first; p < last;) {
    const int64_t in_page = p % pools_per_page;
    const int64_t count = std::min(pools_per_page - in_page, last - p);
    const std::byte* keys = pages.of(a.cache, p / pools_per_page) + a.cache.pooled_offset +
                            in_page * dim * size_of(a.cache.pooled_dtype);
    HWY_DYNAMIC_DISPATCH(score_page)
    (a.query.row<float>(t), weight, a.heads, dim, keys, a.cache.pooled_dtype, count, scores + (p - first));
    p += count;
  }
}

void give(const kernels::IndexSelect& a, int64_t t, int64_t count) {
  int32_t* out = a.pools.row<int32_t>(t);
  std::fill(out + count, out + a.topk / a.pool, -1);
  *a.count.row<int32_t>(t) = static_cast<int32_t>(count);
}

}  // namespace

int64_t index_select_thread_floats(const Dims& dims) {
  if (dims.index_pool == 0) return 0;
  return kTilePools + 2 * (dims.index_topk / dims.index_pool + kSlack);
}
int64_t index_select_shared_floats() {
  return kSharedPools;
}

void CpuOps::latent_write(const StepView& step, const kernels::LatentWrite& a) {
  const int64_t row_bytes = a.latent.cols * size_of(a.cache.latent_dtype);
  for (int32_t i = 0; i < step.sequences; ++i) {
    const kernels::Sequence& s = step.sequence[i];
    const Paged pages{step, s};
    for (int64_t r = 0; r < s.rows; ++r) {
      const int64_t position = s.first + r;
      std::byte* to = pages.of(a.cache, position / kernels::kPageTokens) + a.cache.latent_offset +
                      position % kernels::kPageTokens * row_bytes;
      store_row(to, a.cache.latent_dtype, a.latent.row<float>(s.row + r), a.latent.cols);
    }
  }
}

void CpuOps::index_write(const StepView& step, const kernels::IndexWrite& a) {
  const int64_t dim = a.key.cols;
  const int64_t pools_per_page = kernels::kPageTokens / a.pool;
  float* const pooled = thread_scratch_[0];
  for (int32_t i = 0; i < step.sequences; ++i) {
    const kernels::Sequence& s = step.sequence[i];
    const Paged pages{step, s};
    float* ring = reinterpret_cast<float*>(a.cache.ring + s.slot * a.cache.ring_stride);
    const auto entry = [&](int64_t position) { return ring + position % a.cache.ring_length * 2 * dim; };
    for (int64_t r = 0; r < s.rows; ++r) {
      const int64_t position = s.first + r;
      std::memcpy(entry(position), a.key.row<float>(s.row + r), static_cast<size_t>(dim) * sizeof(float));
      std::memcpy(entry(position) + dim, a.gate.row<float>(s.row + r),
                  static_cast<size_t>(dim) * sizeof(float));
      if ((position + 1) % a.pool != 0) continue;
      const int64_t p = position / a.pool;
      const float* entries[kernels::kPageTokens];
      for (int64_t j = 0; j < a.pool; ++j) entries[j] = entry(p * a.pool + j);
      HWY_DYNAMIC_DISPATCH(pool_keys)(entries, a.ape, a.pool, dim, pooled);
      store_row(pages.of(a.cache, p / pools_per_page) + a.cache.pooled_offset +
                    p % pools_per_page * dim * size_of(a.cache.pooled_dtype),
                a.cache.pooled_dtype, pooled, dim);
    }
  }
}

void CpuOps::index_select(const StepView& step, const kernels::IndexSelect& a) {
  GODWIT_ASSERT(a.heads <= kMaxIndexHeads);
  const int64_t keep = a.topk / a.pool;
  const int64_t pool_work = a.query.cols + 64;
  const auto candidates_of = [&](int64_t t) {
    const kernels::Sequence& s = step.sequence[step.row_sequence[t]];
    return (s.first + t - s.row + 1) / a.pool;
  };
  const auto words_of = [&](int thread) {
    return reinterpret_cast<uint64_t*>(thread_scratch_[static_cast<size_t>(thread)] + kTilePools);
  };
  int64_t scored = 0;
  int64_t longest = 0;
  for (int64_t t = 0; t < step.rows; ++t) {
    const int64_t n = candidates_of(t);
    scored += n > keep ? n : 0;
    longest = std::max(longest, n);
  }
  const auto select_row = [&](int64_t t, int thread) {
    const int64_t n = candidates_of(t);
    int32_t* out = a.pools.row<int32_t>(t);
    if (n <= keep) {
      for (int64_t p = 0; p < n; ++p) out[p] = static_cast<int32_t>(p);
      return give(a, t, n);
    }
    const Paged pages{step, step.sequence[step.row_sequence[t]]};
    float* scores = thread_scratch_[static_cast<size_t>(thread)];
    TopK best(words_of(thread), keep);
    for (int64_t p = 0; p < n; p += kTilePools) {
      const int64_t last = std::min(n, p + kTilePools);
      score_range(a, pages, t, p, last, scores);
      best.add(scores, p, last - p);
    }
    give(a, t, best.finish(out));
  };
  if (step.rows >= 2 * pool_.threads() || longest <= kTilePools) {
    pool_.run(step.rows, scored * pool_work, select_row);
    return;
  }
  // Few rows, long contexts: all threads score one row together. A score does not know who computed it.
  float* const shared = shared_scratch_.as<float>();
  for (int64_t t = 0; t < step.rows; ++t) {
    const int64_t n = candidates_of(t);
    if (n <= kTilePools) {
      select_row(t, 0);
      continue;
    }
    const Paged pages{step, step.sequence[step.row_sequence[t]]};
    TopK best(words_of(0), keep);
    for (int64_t p = 0; p < n; p += kSharedPools) {
      const int64_t last = std::min(n, p + kSharedPools);
      const int64_t tiles = (last - p + kTilePools - 1) / kTilePools;
      pool_.run(tiles, (last - p) * pool_work, [&](int64_t tile, int) {
        const int64_t from = p + tile * kTilePools;
        score_range(a, pages, t, from, std::min(last, from + kTilePools), shared + (from - p));
      });
      best.add(shared, p, last - p);
    }
    give(a, t, best.finish(a.pools.row<int32_t>(t)));
  }
}

void CpuOps::dsa_project(const StepView& step, const kernels::DsaProject& a) {
  const bool indexer = !a.wq_b.empty();
  // Everything that reads x in one sharing of the pool, then everything that reads the query latent.
  const kernels::Linear from_x[] = {{a.x, a.q_a, a.q_latent},
                                    {a.x, a.kv_a, a.latent},
                                    {a.x, a.weights_proj, a.index_weight},
                                    {a.x, a.wk, a.index_key},
                                    {a.x, a.gate, a.index_gate}};
  linear_many(pool_, {from_x, indexer ? 5u : 2u}, thread_scratch_.data());
  rms_norm({a.q_latent, a.q_a_norm, a.eps, a.q_latent});
  rms_norm({a.latent, a.kv_a_norm, a.eps, a.latent});
  latent_write(step, {a.latent, a.cache});
  const kernels::Linear from_latent[] = {{a.q_latent, a.q_b, a.q}, {a.q_latent, a.wq_b, a.index_query}};
  linear_many(pool_, {from_latent, indexer ? 2u : 1u}, thread_scratch_.data());
  head_linear({a.q, a.absorb_k, a.heads, a.query});
  if (!indexer) return;
  layer_norm({a.index_key, a.k_norm_weight, a.k_norm_bias, a.k_norm_eps, a.index_key});
  index_write(step, {a.index_key, a.index_gate, a.ape, a.pool, a.cache});
}

}  // namespace godwit::cpu
#endif  // HWY_ONCE
