// The indexer's selection (glm5_next spec §10.3, §10.4): scores in tiles with a running top-k, so that the
// workspace does not grow with the context.
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/limits.h"
#include "kernels/cpu/paged.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/index_select.cpp"
#include "hwy/foreach_target.h"
// clang-format off
#include "kernels/cpu/dots-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {
namespace {

// scores[i] = sum_h weight[h] relu(q_h · key_i). Heads in order, four keys at a time; every key's sums have
// the same order.
template <class Row>
void score_rows(const float* q, const float* weight, int64_t heads, int64_t dim,
                const kernels::StoredRow* keys, int64_t count, float* scores) {
  const hn::FixedTag<float, 4> d4;
  for (int64_t i = 0; i < count; i += 4) {
    const auto row = [&](int64_t j) { return Row(keys[i + j < count ? i + j : count - 1]); };
    const Row key[4] = {row(0), row(1), row(2), row(3)};
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

void score_keys(DType format, const float* q, const float* weight, int64_t heads, int64_t dim,
                const kernels::StoredRow* keys, int64_t count, float* scores) {
  const auto score = format == DType::f32    ? score_rows<ValueRow<float>>
                     : format == DType::bf16 ? score_rows<ValueRow<bf16>>
                                             : score_rows<CodeRow>;
  score(q, weight, heads, dim, keys, count, scores);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::cpu {

HWY_EXPORT(score_keys);

namespace {

constexpr int64_t kSlack = 256;          // candidates collected between two cuts of the running top-k
constexpr int64_t kTilePools = 1024;     // scored at a time
constexpr int64_t kSharedPools = 16384;  // one row's scores when all threads score for it

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

// The query of row t as it meets keys of their format: in place, or made at `room`.
const float* query_of(const kernels::IndexSelect& a, int64_t t, float* room) {
  const float* query = a.query.row<float>(t);
  if (a.cache.pooled_dtype != DType::f8_e4m3) return query;
  const int64_t dim = a.query.cols / a.heads;
  for (int64_t h = 0; h < a.heads; ++h)
    kernels::meet_keys(a.cache.pooled_dtype, query + h * dim, dim, room + h * dim);
  return room;
}

constexpr int64_t top_k_floats(int64_t keep) {
  return (keep + kSlack) * static_cast<int64_t>(sizeof(uint64_t) / sizeof(float));
}

// Scores of pools [first, last) of row t at `scores`.
void score_range(const kernels::IndexSelect& a, const Paged& pages, int64_t t, const float* query,
                 int64_t first, int64_t last, float* scores) {
  const int64_t pools_per_page = kernels::kPageTokens / a.pool;
  const int64_t dim = a.query.cols / a.heads;
  float weight[kMaxIndexHeads];
  for (int64_t h = 0; h < a.heads; ++h) weight[h] = a.scale * a.weight.row<float>(t)[h];
  constexpr int64_t kAtOnce = kernels::kPageTokens;
  kernels::StoredRow keys[kAtOnce];
  for (int64_t p = first; p < last; p += kAtOnce) {
    const int64_t count = std::min(kAtOnce, last - p);
    for (int64_t i = 0; i < count; ++i) keys[i] = pages.key(a.cache, pools_per_page, p + i, dim);
    HWY_DYNAMIC_DISPATCH(score_keys)
    (a.cache.pooled_dtype, query, weight, a.heads, dim, keys, count, scores + (p - first));
  }
}

void give(const kernels::IndexSelect& a, int64_t t, int64_t count) {
  int32_t* out = a.pools.row<int32_t>(t);
  std::fill(out + count, out + a.topk / a.pool, -1);
  *a.count.row<int32_t>(t) = static_cast<int32_t>(count);
}

}  // namespace

// A thread's area: the scores of a tile, the words of a TopK, a query.
int64_t index_select_thread_floats(const Dims& dims) {
  if (dims.index_pool == 0) return 0;
  return kTilePools + top_k_floats(dims.index_topk / dims.index_pool) + dims.index_heads * dims.index_dim;
}
int64_t index_select_shared_floats() {
  return kSharedPools;
}

void CpuOps::index_select(const StepView& step, const kernels::IndexSelect& a) {
  GODWIT_ASSERT(a.heads <= kMaxIndexHeads);
  const int64_t keep = a.topk / a.pool;
  float* const* scratch = thread_scratch();
  const int64_t pool_work = a.query.cols + 64;
  const auto candidates_of = [&](int64_t t) {
    const kernels::Sequence& s = step.sequence[step.row_sequence[t]];
    return (s.first + t - s.row + 1) / a.pool;
  };
  const auto words_of = [&](int thread) { return reinterpret_cast<uint64_t*>(scratch[thread] + kTilePools); };
  const auto query_room_of = [&](int thread) { return scratch[thread] + kTilePools + top_k_floats(keep); };
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
    const float* query = query_of(a, t, query_room_of(thread));
    float* scores = scratch[thread];
    TopK best(words_of(thread), keep);
    for (int64_t p = 0; p < n; p += kTilePools) {
      const int64_t last = std::min(n, p + kTilePools);
      score_range(a, pages, t, query, p, last, scores);
      best.add(scores, p, last - p);
    }
    give(a, t, best.finish(out));
  };
  if (step.rows >= 2 * pool_.threads() || longest <= kTilePools) {
    pool_.run(step.rows, scored * pool_work, select_row);
    return;
  }
  // Few rows, long contexts: all threads score one row together. A score does not know who computed it.
  float* const shared = shared_scratch();
  for (int64_t t = 0; t < step.rows; ++t) {
    const int64_t n = candidates_of(t);
    if (n <= kTilePools) {
      select_row(t, 0);
      continue;
    }
    const Paged pages{step, step.sequence[step.row_sequence[t]]};
    const float* query = query_of(a, t, query_room_of(0));
    TopK best(words_of(0), keep);
    for (int64_t p = 0; p < n; p += kSharedPools) {
      const int64_t last = std::min(n, p + kSharedPools);
      const int64_t tiles = (last - p + kTilePools - 1) / kTilePools;
      pool_.run(tiles, (last - p) * pool_work, [&](int64_t tile, int) {
        const int64_t from = p + tile * kTilePools;
        score_range(a, pages, t, query, from, std::min(last, from + kTilePools), shared + (from - p));
      });
      best.add(shared, p, last - p);
    }
    give(a, t, best.finish(a.pools.row<int32_t>(t)));
  }
}

}  // namespace godwit::cpu
#endif  // HWY_ONCE
