// index_select over 2^16 - 1, 2^16 and 2^16 + 1 pools. The pooled keys are put into the pages directly:
// nothing but selection is looked at.
#include <algorithm>
#include <numeric>

#include "harness.h"
#include "step_builder.h"

namespace godwit::ops_test {
namespace {

constexpr int64_t kDim = 8, kHeads = 2, kPool = 4, kTopk = 64;
constexpr int64_t kKeep = kTopk / kPool, kPoolsPerPage = kernels::kPageTokens / kPool;
constexpr int64_t kMostPools = (1 << 16) + 1;
constexpr int64_t kPages = (kMostPools + kPoolsPerPage - 1) / kPoolsPerPage;

// Scores are exact in f32: few levels, so that thousands of pools tie, and the best lie at both ends.
float key_of(int64_t pool, int64_t c) {
  if (c == 0 && (pool == 0 || pool >= kMostPools - 4)) return 64;
  return std::round(4 * noise(97, static_cast<uint64_t>(pool), static_cast<uint64_t>(c)));
}

TEST_P(EveryBackend, IndexSelectAround65536Pools) {
  Side s(backend(GetParam()));
  Matrix pooled(kPages * kPoolsPerPage, kDim);
  for (int64_t p = 0; p < pooled.rows; ++p) {
    for (int64_t c = 0; c < kDim; ++c) pooled.at(p, c) = key_of(p, c);
  }
  kernels::DsaCache cache;
  cache.base = static_cast<std::byte*>(s.input(pooled).data);
  cache.page_stride = kPoolsPerPage * kDim * 4;
  std::vector<int32_t> pages(kPages);
  std::iota(pages.begin(), pages.end(), 0);
  Matrix query(3, kHeads * kDim), weight(3, kHeads);
  for (float& v : query.v) v = 0;
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t c = 0; c < 3; ++c) query.at(r, c) = 1;
    query.at(r, kDim) = -1;
    weight.at(r, 0) = 1;
    weight.at(r, 1) = 0.5f;
  }
  // One row of a sequence each, then all three in one step.
  std::vector<SequenceSpec> specs;
  for (int64_t pools = kMostPools - 2; pools <= kMostPools; ++pools) {
    specs.push_back(
        {kernels::RowKind::decode, pools * kPool, 1, static_cast<int32_t>(specs.size()), 0, pages, 0});
  }
  const auto select = [&](const std::vector<SequenceSpec>& some) {
    const Step step(s, some);
    const int64_t rows = step.view.rows;
    const View chosen = s.output(rows, kKeep, DType::i32);
    const View count = s.output(rows, 1, DType::i32);
    s.ops.index_select(step.view,
                       {s.input(pick(query, all_rows(rows))), s.input(pick(weight, all_rows(rows))), 1, cache,
                        kPool, kTopk, kHeads, chosen, count});
    const Matrix counts = s.read(count);
    for (const float n : counts.v) EXPECT_EQ(n, static_cast<float>(kKeep));
    return s.read(chosen);
  };
  const Matrix together = select(specs);
  for (int64_t r = 0; r < 3; ++r) {
    const int64_t pools = kMostPools - 2 + r;
    expect_same_bits(select({specs[static_cast<size_t>(r)]}), pick(together, {r}), "alone = together");
    const auto score = [](int64_t p) {
      return std::max(0.0f, key_of(p, 0) + key_of(p, 1) + key_of(p, 2)) +
             0.5f * std::max(0.0f, -key_of(p, 0));
    };
    std::vector<int64_t> order(static_cast<size_t>(pools));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return score(a) > score(b); });
    EXPECT_EQ(score(order[kKeep - 1]), score(order[kKeep])) << "the cut must go through a tie";
    order.resize(kKeep);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order.back(), pools - 1);
    for (int64_t i = 0; i < kKeep; ++i)
      EXPECT_EQ(together.at(r, i), static_cast<float>(order[static_cast<size_t>(i)])) << pools << " pools";
  }
}

}  // namespace
}  // namespace godwit::ops_test
