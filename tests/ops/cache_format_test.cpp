// What the backends write into caches of every format, and what becomes of it, at the edges of the formats.
#include "kernels/cache_format.h"

#include <fmt/core.h>

#include <cmath>

#include "dsa_world.h"

namespace godwit::ops_test {
namespace {

using kernels::RowKind;

constexpr DType kFormats[] = {DType::f32, DType::bf16, DType::f8_e4m3};

// Rows that stand at the edges: nothing, denormals, one value that drowns all others, values that are codes,
// values in the middle between two codes, magnitudes far apart.
Matrix edge_rows(int64_t cols) {
  Matrix m(8, cols);
  for (int64_t c = 0; c < cols; ++c) {
    const float sign = c % 3 == 1 ? -1.0f : 1.0f;
    m.at(0, c) = 0;
    m.at(1, c) = sign * 3e-41f;
    m.at(2, c) = c == cols / 2 ? -1e30f : sign * noise(81, static_cast<uint64_t>(c));
    m.at(3, c) = sign * 448;
    m.at(4, c) = c == 0 ? 448.0f : sign * static_cast<float>(17 + 2 * (c % 8));
    m.at(5, c) = sign * std::ldexp(1.0f, static_cast<int>(c % 40) - 20);
    m.at(6, c) = noise(82, static_cast<uint64_t>(c)) * 1e-6f;
    m.at(7, c) = noise(83, static_cast<uint64_t>(c));
  }
  return m;
}

// One page of a layer: rows of `m` as tokens 0, 1, …; as keys, each four times with equal gates, so that
// every pool is a row of `m` without any rounding.
class Page {
 public:
  Page(Side& side, DType format, const Matrix& m)
      : side_(side), rows_(m.rows), cols_(m.cols), format_(format) {
    cache_.pooled_offset = 128;
    cache_.latent_offset =
        cache_.pooled_offset + kernels::kPageTokens / 4 * kernels::row_bytes(format, m.cols) + 64;
    cache_.page_stride =
        cache_.latent_offset + kernels::kPageTokens * kernels::row_bytes(format, m.cols) + 64;
    cache_.latent_offset = cache_.latent_offset / 64 * 64;
    cache_.page_stride = cache_.page_stride / 64 * 64 + 64;
    cache_.latent_dtype = cache_.pooled_dtype = format;
    cache_.base = side.raw(3 * cache_.page_stride);
    cache_.ring_length = 8;
    cache_.ring_stride = 8 * 2 * m.cols * 4;
    cache_.ring = side.raw(2 * cache_.ring_stride);
    Matrix four(4 * m.rows, m.cols);
    for (int64_t r = 0; r < four.rows; ++r)
      for (int64_t c = 0; c < m.cols; ++c) four.at(r, c) = m.at(r / 4, c);
    const float* ape = side.floats(Matrix(4, m.cols).v);
    const Step tokens(side, {sequence(0, m.rows)}), pools(side, {sequence(0, 4 * m.rows)});
    side.ops.latent_write(tokens.view, {side.input(m), cache_});
    side.ops.index_write(pools.view,
                         {side.input(four), side.input(Matrix(four.rows, four.cols)), ape, 4, cache_});
  }

  std::vector<std::byte> latents() {
    return bytes(cache_.latent_offset, rows_ * kernels::row_bytes(format_, cols_));
  }
  // Without the place of pools that were not written.
  std::vector<std::byte> keys() {
    std::vector<std::byte> out =
        bytes(cache_.pooled_offset, rows_ * kernels::row_value_bytes(format_, cols_));
    const std::vector<std::byte> scales =
        bytes(cache_.pooled_offset + kernels::kPageTokens / 4 * kernels::padded_codes(cols_),
              rows_ * kernels::row_scale_bytes(format_, cols_));
    out.insert(out.end(), scales.begin(), scales.end());
    return out;
  }
  // Attention of `query` [heads, cols] at `position` over the tokens from 0 on: its tail, or whole pools too.
  Matrix attend(const Matrix& query, int64_t position) {
    const Step step(side_, {sequence(position, 1)});
    const auto pools = static_cast<float>((position + 1) / 4);
    Matrix list(1, 2), count(1, 1);
    for (int64_t i = 0; i < 2; ++i)
      list.at(0, i) = static_cast<float>(i) < pools ? static_cast<float>(i) : -1;
    count.at(0, 0) = pools;
    Matrix flat(1, query.rows * query.cols);
    flat.v = query.v;
    const View out = side_.output(1, flat.cols);
    side_.ops.mla_attend(step.view, {side_.input(flat), cache_, side_.input(list, DType::i32),
                                     side_.input(count, DType::i32), 4, query.rows, 0.1f, out});
    return side_.read(out);
  }

 private:
  static SequenceSpec sequence(int64_t first, int64_t rows) {
    return {RowKind::forced, first, static_cast<int32_t>(rows), 1, 0, {2}, 1};
  }
  std::vector<std::byte> bytes(int64_t offset, int64_t count) {
    return side_.download<std::byte>(cache_.base + 2 * cache_.page_stride + offset, count);
  }

  Side& side_;
  int64_t rows_, cols_;
  DType format_;
  kernels::DsaCache cache_;
};

// -0 and the padding of codes may differ between backends, what a row says may not.
TEST_P(Backends, CachesOfEdgeRowsHaveTheBytesOfTheOracle) {
  for (const DType format : kFormats) {
    if (!backend(GetParam()).holds(format)) continue;
    for (const int64_t cols : {1, 2, 3, 16, 40, 72, 127, 128, 129, 200, 512}) {
      SCOPED_TRACE(fmt::format("{} cols {}", kernels::cache_format_name(format), cols));
      Side reference(oracle());
      Side tested(backend(GetParam()));
      const Matrix rows = edge_rows(cols);
      Page expected(reference, format, rows), got(tested, format, rows);
      EXPECT_EQ(got.latents(), expected.latents());
      EXPECT_EQ(got.keys(), expected.keys());
      // The rows but the one of 1e30, which leaves nothing of the others to compare.
      Matrix moderate = rows;
      for (int64_t c = 0; c < cols; ++c) moderate.at(2, c) = noise(84, static_cast<uint64_t>(c));
      Page expected_page(reference, format, moderate), page(tested, format, moderate);
      // So small that scores stay near 1: of one near 100, f32 leaves the weight no six digits.
      const Matrix query = random_matrix(85, 3, cols, 0.001f);
      for (const int64_t position : {0, 2, 3, 6, 7})
        expect_close(page.attend(query, position), expected_page.attend(query, position), {4e-6, 1e-5},
                     fmt::format("attention at {}", position));
    }
  }
}

// A row that is broken is broken for whoever reads it; its neighbours are not.
TEST_P(EveryBackend, ABrokenLatentReachesAttentionInEveryFormat) {
  for (const DType format : kFormats) {
    Side s(backend(GetParam()));
    if (!s.ops.holds(format)) continue;
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      SCOPED_TRACE(fmt::format("{} {}", kernels::cache_format_name(format), bad));
      Matrix rows = random_matrix(86, 8, 40);
      rows.at(6, 17) = bad;
      Page page(s, format, rows);
      const Matrix query = random_matrix(87, 1, 40);
      const Matrix before = page.attend(query, 5), after = page.attend(query, 6);
      for (const float v : before.v) EXPECT_TRUE(std::isfinite(v));
      int64_t not_finite = 0;
      for (const float v : after.v) not_finite += !std::isfinite(v);
      EXPECT_GT(not_finite, 0);
    }
  }
}

// The codes of a pool are made of its f32 key and of nothing else, whatever steps its tokens came in.
TEST_P(EveryBackend, Fp8KeysAreTheCodesOfTheF32Ones) {
  if (!backend(GetParam()).holds(DType::f8_e4m3)) GTEST_SKIP() << "no kernels for fp8 caches";
  for (const int64_t dim : {16, 40, 128, 133}) {
    Side s(backend(GetParam()));
    DsaShape shape{.heads = 1, .latent = 72, .index_dim = dim};
    DsaWorld exact(s, shape);
    shape.latent_dtype = shape.pooled_dtype = DType::f8_e4m3;
    DsaWorld coded(s, shape);
    int32_t first = 0;
    for (const int32_t rows : {64, 1, 2, 5, 56}) {
      const SequenceSpec part{rows > 50 ? RowKind::prefill : RowKind::forced, first, rows, 1, 0, {3, 7}, 4};
      exact.write({part});
      coded.write({part});
      first += rows;
    }
    for (const int32_t page : {3, 7}) {
      Matrix latents = exact.latents(page), keys = exact.pooled(page);
      std::vector<std::byte> room(static_cast<size_t>(kernels::row_bytes(DType::f8_e4m3, 200)));
      const kernels::StoredRow row = kernels::latent_at(room.data(), DType::f8_e4m3, 0, 200);
      for (int64_t i = 0; i < latents.rows; ++i) {
        kernels::store_latent(row, DType::f8_e4m3, &latents.at(i, 0), latents.cols);
        kernels::load_row(row, DType::f8_e4m3, &latents.at(i, 0), latents.cols);
      }
      for (int64_t i = 0; i < keys.rows; ++i) {
        kernels::store_key(row, DType::f8_e4m3, &keys.at(i, 0), keys.cols);
        kernels::load_row(row, DType::f8_e4m3, &keys.at(i, 0), keys.cols);
      }
      expect_same_bits(coded.latents(page), latents, fmt::format("latents of page {}", page));
      expect_same_bits(coded.pooled(page), keys, fmt::format("keys of page {}, dim {}", page, dim));
    }
  }
}

}  // namespace
}  // namespace godwit::ops_test
