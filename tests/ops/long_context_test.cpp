// index_select over many pools: around 2^16 in f32, and around 2^14 in the shape and formats that have forms
// of their own, where a form that looks at a part of the pools begins to leave some out. The pooled keys are
// put into the pages directly: nothing but selection is looked at.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "harness.h"
#include "step_builder.h"

namespace godwit::ops_test {
namespace {

constexpr int64_t kPool = 4, kTopk = 64, kKeep = kTopk / kPool, kPoolsPerPage = kernels::kPageTokens / kPool;

struct Shape {
  DType format;
  int64_t dim, heads, most_pools;
};

// Few levels in three channels, exact in every format, so that scores are exact and thousands of pools tie;
// the best lie at both ends.
float key_of(const Shape& shape, int64_t pool, int64_t c) {
  if (c == 0 && (pool == 0 || pool >= shape.most_pools - 4)) return 64;
  return c > 2 ? 0.0f
               : std::clamp(std::round(4 * noise(97, static_cast<uint64_t>(pool), static_cast<uint64_t>(c))),
                            -15.0f, 15.0f);
}

std::vector<std::byte> pages_of(const Shape& shape, int64_t pages) {
  const int64_t stride = kPoolsPerPage * kernels::row_bytes(shape.format, shape.dim);
  std::vector<std::byte> bytes(static_cast<size_t>(pages * stride));
  std::vector<float> key(static_cast<size_t>(shape.dim));
  for (int64_t p = 0; p < pages * kPoolsPerPage; ++p) {
    for (int64_t c = 0; c < shape.dim; ++c) key[static_cast<size_t>(c)] = key_of(shape, p, c);
    const kernels::StoredRow row = kernels::key_at(bytes.data() + p / kPoolsPerPage * stride, shape.format,
                                                   kPoolsPerPage, p % kPoolsPerPage, shape.dim);
    if (shape.format == DType::f8_e4m3) {  // as they are when turned
      kernels::encode_group(key.data(), shape.dim, 1, kernels::codes_of(row));
      row.scales[0] = 1;
    } else {
      kernels::store_key(row, shape.format, key.data(), shape.dim);
    }
  }
  return bytes;
}

void check_selection(const std::string& name, const Shape& shape) {
  SCOPED_TRACE(fmt::format("{} {} pools", kernels::cache_format_name(shape.format), shape.most_pools));
  Side s(backend(name));
  const int64_t page_count = (shape.most_pools + kPoolsPerPage - 1) / kPoolsPerPage;
  kernels::DsaCache cache;
  cache.base = s.upload(pages_of(shape, page_count));
  cache.page_stride = kPoolsPerPage * kernels::row_bytes(shape.format, shape.dim);
  cache.pooled_dtype = shape.format;
  std::vector<int32_t> pages(static_cast<size_t>(page_count));
  std::iota(pages.begin(), pages.end(), 0);
  Matrix query(3, shape.heads * shape.dim), weight(3, shape.heads);
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t c = 0; c < 3; ++c) query.at(r, c) = 1;
    query.at(r, shape.dim) = -1;
    weight.at(r, 0) = 1;
    weight.at(r, 1) = 0.5f;
    for (int64_t h = 0; h < shape.heads && shape.format == DType::f8_e4m3; ++h)
      kernels::hadamard(&query.at(r, h * shape.dim), shape.dim);
  }
  // One row of a sequence each, then all three in one step.
  std::vector<SequenceSpec> specs;
  for (int64_t pools = shape.most_pools - 2; pools <= shape.most_pools; ++pools) {
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
                        kPool, kTopk, shape.heads, chosen, count});
    const Matrix counts = s.read(count);
    for (const float n : counts.v) EXPECT_EQ(n, static_cast<float>(kKeep));
    return s.read(chosen);
  };
  const Matrix together = select(specs);
  for (int64_t r = 0; r < 3; ++r) {
    const int64_t pools = shape.most_pools - 2 + r;
    expect_same_bits(select({specs[static_cast<size_t>(r)]}), pick(together, {r}), "alone = together");
    const auto score = [&](int64_t p) {
      return std::max(0.0f, key_of(shape, p, 0) + key_of(shape, p, 1) + key_of(shape, p, 2)) +
             0.5f * std::max(0.0f, -key_of(shape, p, 0));
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

TEST_P(EveryBackend, IndexSelectAround65536Pools) {
  check_selection(GetParam(), {DType::f32, 8, 2, (1 << 16) + 1});
}

TEST_P(EveryBackend, IndexSelectAround16384PoolsOfTheRealShape) {
  for (const DType format : {DType::bf16, DType::f8_e4m3})
    check_selection(GetParam(), {format, 128, 32, (1 << 14) + 1});
}

}  // namespace
}  // namespace godwit::ops_test
