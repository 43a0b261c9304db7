#include <algorithm>
#include <limits>

#include "kernels/reference/access.h"
#include "kernels/reference/reference_ops.h"

namespace godwit::kernels::reference {
namespace {

// Where the tokens of one sequence lie in the paged caches and the ring.
class Cached {
 public:
  Cached(const StepView& step, const DsaCache& cache, int64_t row)
      : sequence_(step.sequence[step.row_sequence[row]]), pages_(step.pages), cache_(cache) {}

  StoredRow latent(int64_t position, int64_t width) const {
    return cache_.latent(page(position), position % kPageTokens, width);
  }
  StoredRow pooled(int64_t pool_index, int64_t pool, int64_t width) const {
    const int64_t pools = kPageTokens / pool;
    return cache_.key(page(pool_index * pool), pools, pool_index % pools, width);
  }
  // [2, width]: key, gate.
  float* ring(int64_t position, int64_t width) const {
    std::byte* slot = cache_.ring + int64_t{sequence_.slot} * cache_.ring_stride;
    return static_cast<float*>(static_cast<void*>(slot)) + position % cache_.ring_length * 2 * width;
  }

 private:
  int64_t page(int64_t position) const { return pages_[sequence_.page_offset + position / kPageTokens]; }

  const Sequence& sequence_;
  const int32_t* pages_;
  const DsaCache& cache_;
};

std::vector<double> stored(const StoredRow& row, DType format, int64_t width) {
  std::vector<float> values(static_cast<size_t>(width));
  load_row(row, format, values.data(), width);
  return {values.begin(), values.end()};
}

std::vector<float> rounded(const std::vector<double>& row) {
  return {row.begin(), row.end()};
}

double pooled_key(const Cached& cached, const IndexWrite& a, int64_t first, int64_t c) {
  const int64_t width = a.key.cols;
  double largest = -std::numeric_limits<double>::infinity();
  const auto logit = [&](int64_t s) {
    return static_cast<double>(cached.ring(first + s, width)[width + c]) + a.ape[s * width + c];
  };
  for (int64_t s = 0; s < a.pool; ++s) largest = std::max(largest, logit(s));
  double total = 0;
  double sum = 0;
  for (int64_t s = 0; s < a.pool; ++s) {
    const double p = std::exp(logit(s) - largest);
    total += p;
    sum += p * cached.ring(first + s, width)[c];
  }
  return sum / total;
}

// The query heads of row t as they meet the keys.
std::vector<double> query_of(const IndexSelect& a, int64_t t) {
  const std::vector<float> query = rounded(read(a.query, t));
  const int64_t width = a.query.cols / a.heads;
  std::vector<float> out(query.size());
  for (int64_t h = 0; h < a.heads; ++h)
    meet_keys(a.cache.pooled_dtype, query.data() + h * width, width, out.data() + h * width);
  return {out.begin(), out.end()};
}

float pool_score(const IndexSelect& a, const std::vector<double>& query, int64_t t,
                 const std::vector<double>& key) {
  const auto width = static_cast<int64_t>(key.size());
  double score = 0;
  for (int64_t h = 0; h < a.heads; ++h) {
    score += get(a.weight, t, h) * std::max(0.0, dot(query.data() + h * width, key.data(), width));
  }
  return static_cast<float>(a.scale * score);
}

}  // namespace

void ReferenceOps::latent_write(const StepView& step, const LatentWrite& a) {
  for (int64_t t = 0; t < step.rows; ++t) {
    const Cached cached(step, a.cache, t);
    const int64_t width = a.latent.cols;
    store_latent(cached.latent(position_of(step, t), width), a.cache.latent_dtype,
                 rounded(read(a.latent, t)).data(), width);
  }
}

void ReferenceOps::index_write(const StepView& step, const IndexWrite& a) {
  const int64_t width = a.key.cols;
  for (int64_t t = 0; t < step.rows; ++t) {
    const Cached cached(step, a.cache, t);
    const int64_t position = position_of(step, t);
    float* entry = cached.ring(position, width);
    for (int64_t c = 0; c < width; ++c) {
      entry[c] = static_cast<float>(get(a.key, t, c));
      entry[width + c] = static_cast<float>(get(a.gate, t, c));
    }
    if ((position + 1) % a.pool != 0) continue;
    std::vector<float> key(static_cast<size_t>(width));
    for (int64_t c = 0; c < width; ++c)
      key[c] = static_cast<float>(pooled_key(cached, a, position + 1 - a.pool, c));
    store_key(cached.pooled(position / a.pool, a.pool, width), a.cache.pooled_dtype, key.data(), width);
  }
}

void ReferenceOps::index_select(const StepView& step, const IndexSelect& a) {
  const int64_t width = a.query.cols / a.heads;
  const int64_t most = a.topk / a.pool;
  for (int64_t t = 0; t < step.rows; ++t) {
    const Cached cached(step, a.cache, t);
    const int64_t candidates = (position_of(step, t) + 1) / a.pool;
    std::vector<int32_t> chosen(static_cast<size_t>(candidates));
    for (int64_t p = 0; p < candidates; ++p) chosen[p] = static_cast<int32_t>(p);
    if (candidates > most) {
      const std::vector<double> query = query_of(a, t);
      std::vector<float> scores(static_cast<size_t>(candidates));
      for (int64_t p = 0; p < candidates; ++p) {
        const float score =
            pool_score(a, query, t, stored(cached.pooled(p, a.pool, width), a.cache.pooled_dtype, width));
        scores[p] = std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
      }
      std::stable_sort(chosen.begin(), chosen.end(),
                       [&](int32_t x, int32_t y) { return scores[x] > scores[y]; });
      chosen.resize(static_cast<size_t>(most));
      std::sort(chosen.begin(), chosen.end());
    }
    const auto count = static_cast<int64_t>(chosen.size());
    for (int64_t i = 0; i < most; ++i) a.pools.row<int32_t>(t)[i] = i < count ? chosen[i] : -1;
    *a.count.row<int32_t>(t) = static_cast<int32_t>(count);
  }
}

void ReferenceOps::index_reuse(const StepView& step, const IndexReuse& a) {
  for (int64_t r = 0; r < a.out_pools.rows; ++r) {
    const int64_t from = a.rows ? a.rows[r] : r;
    const int32_t* list = a.pools.row<int32_t>(from);
    std::vector<int32_t> out(list, list + *a.count.row<int32_t>(from));
    if (a.ahead > 0) {
      const int64_t end = position_of(step, r) + 1;
      for (int64_t p = std::max<int64_t>(end - a.ahead, 0) / a.pool; p < end / a.pool; ++p)
        out.push_back(static_cast<int32_t>(p));
    }
    const auto count = static_cast<int64_t>(out.size());
    GODWIT_ASSERT(count <= a.out_pools.cols);
    for (int64_t i = 0; i < a.out_pools.cols; ++i) a.out_pools.row<int32_t>(r)[i] = i < count ? out[i] : -1;
    *a.out_count.row<int32_t>(r) = static_cast<int32_t>(count);
  }
}

void ReferenceOps::mla_attend(const StepView& step, const MlaAttend& a) {
  const int64_t width = a.query.cols / a.heads;
  for (int64_t t = 0; t < step.rows; ++t) {
    const Cached cached(step, a.cache, t);
    const int64_t position = position_of(step, t);
    const auto latent = [&](int64_t at) {
      return stored(cached.latent(at, width), a.cache.latent_dtype, width);
    };
    std::vector<std::vector<double>> latents;
    for (int64_t i = 0; i < *a.count.row<int32_t>(t); ++i) {
      const int64_t first = int64_t{a.pools.row<int32_t>(t)[i]} * a.pool;
      GODWIT_ASSERT(first >= 0 && first + a.pool <= position + 1);
      for (int64_t s = 0; s < a.pool; ++s) latents.push_back(latent(first + s));
    }
    for (int64_t p = (position + 1) / a.pool * a.pool; p <= position; ++p) {
      latents.push_back(latent(p));
    }
    for (int64_t h = 0; h < a.heads; ++h) {
      const std::vector<double> query = read(a.query, t, h * width, width);
      std::vector<double> p(latents.size());
      for (size_t j = 0; j < p.size(); ++j) p[j] = a.scale * dot(query.data(), latents[j].data(), width);
      const double largest = *std::max_element(p.begin(), p.end());
      double total = 0;
      for (double& v : p) total += v = std::exp(v - largest);
      for (int64_t c = 0; c < width; ++c) {
        double sum = 0;
        for (size_t j = 0; j < p.size(); ++j) sum += p[j] * latents[j][c];
        put(a.out, t, h * width + c, sum / total);
      }
    }
  }
}

}  // namespace godwit::kernels::reference
