// The composite entries a backend may fuse, against their plain composition (moe and mhc_boundary are beside
// their plain ops).
#include <fmt/core.h>

#include "exact_fp8.h"
#include "harness.h"
#include "step_builder.h"

namespace godwit::ops_test {
namespace {

using kernels::RowKind;

struct Shape {
  int64_t width = 96, q_latent = 56, latent = 72, heads = 3, nope = 48, index_heads = 9, index_dim = 40;
};

Weight query_latent_weight(Side& s, Shape n, DType dtype) {
  return dtype == DType::f8_e4m3 ? exact_weight(s, 82, n.q_latent, n.width)
                                 : s.weight(82, n.q_latent, n.width, dtype);
}
const float* query_latent_norm(Side& s, Shape n) {
  return s.floats(random_matrix(85, 1, n.q_latent, 0.3f, 1).v);
}

// Rows of which an FP8 q_b quantises nothing near a tie.
Matrix inputs(Shape n, DType dtype) {
  if (dtype != DType::f8_e4m3) return random_matrix(81, 130, n.width);
  return without_near_ties(exact_rows(81, 200, n.width), 130, n.q_latent, [&](Side& s, const Matrix& x) {
    const View out = s.output(x.rows, n.q_latent);
    s.ops.linear({s.input(x), query_latent_weight(s, n, dtype), out});
    s.ops.rms_norm({out, query_latent_norm(s, n), 1e-5f, out});
    return s.read(out);
  });
}

kernels::DsaCache empty_cache(Side& s, Shape n) {
  kernels::DsaCache cache;
  const int64_t latent_bytes = 64 * n.latent * 4;
  cache.page_stride = latent_bytes + 16 * n.index_dim * 4;
  cache.pooled_offset = latent_bytes;
  cache.base = s.raw(130 * cache.page_stride);
  cache.ring_length = 8;
  cache.ring_stride = 8 * 2 * n.index_dim * 4;
  cache.ring = s.raw(130 * cache.ring_stride);
  return cache;
}

kernels::DsaProject project_of(Side& s, Shape n, DType dtype, bool with_indexer, const Matrix& x,
                               const kernels::DsaCache& cache) {
  kernels::DsaProject a;
  a.x = s.input(x);
  const int64_t count = x.rows;
  a.q_a = query_latent_weight(s, n, dtype);
  a.kv_a = s.weight(83, n.latent, n.width, dtype);
  a.q_b = s.weight(84, n.heads * n.nope, n.q_latent, dtype);
  a.q_a_norm = query_latent_norm(s, n);
  a.kv_a_norm = s.floats(random_matrix(86, 1, n.latent, 0.3f, 1).v);
  a.eps = 1e-5f;
  a.absorb_k = s.weight(87, n.heads * n.latent, n.nope, DType::bf16).data;
  a.heads = n.heads;
  if (with_indexer) {
    a.wq_b = s.weight(88, n.index_heads * n.index_dim, n.q_latent, DType::bf16);
    a.wk = s.weight(89, n.index_dim, n.width, DType::bf16);
    a.gate = s.weight(90, n.index_dim, n.width, DType::bf16);
    a.weights_proj = s.weight(91, n.index_heads, n.width, DType::bf16);
    a.k_norm_weight = s.floats(random_matrix(92, 1, n.index_dim, 0.3f, 1).v);
    a.k_norm_bias = s.floats(random_matrix(93, 1, n.index_dim).v);
    a.k_norm_eps = 1e-6f;
    a.ape = s.floats(random_matrix(94, 4, n.index_dim).v);
    a.pool = 4;
    a.index_heads = n.index_heads;
  }
  a.cache = cache;
  a.q_latent = s.output(count, n.q_latent);
  a.q = s.output(count, n.heads * n.nope);
  a.latent = s.output(count, n.latent);
  a.query = s.output(count, n.heads * n.latent);
  a.index_query = s.output(count, n.index_heads * n.index_dim);
  a.index_weight = s.output(count, n.index_heads);
  a.index_key = s.output(count, n.index_dim);
  a.index_gate = s.output(count, n.index_dim);
  return a;
}

// Columns: absorbed queries, stored latents, then the indexer's queries and weights.
Matrix project(Side& s, Shape n, DType dtype, bool with_indexer, const Matrix& x, const Rows& rows) {
  const auto count = static_cast<int64_t>(rows.size());
  std::vector<SequenceSpec> specs;  // every row is a sequence of its own at position 0
  for (const int64_t r : rows) {
    const auto slot = static_cast<int32_t>(r);
    specs.push_back({RowKind::decode, 0, 1, slot, 0, {slot}, 0});
  }
  const Step step(s, specs);
  const kernels::DsaProject a = project_of(s, n, dtype, with_indexer, pick(x, rows), empty_cache(s, n));
  s.ops.dsa_project(step.view, a);

  Matrix stored(count, n.latent);
  Matrix ring(count, 2 * n.index_dim);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t slot = rows[static_cast<size_t>(i)];
    const auto latent = s.download<float>(a.cache.base + slot * a.cache.page_stride, n.latent);
    const auto entry = s.download<float>(a.cache.ring + slot * a.cache.ring_stride, 2 * n.index_dim);
    std::copy(latent.begin(), latent.end(), stored.v.begin() + i * n.latent);
    std::copy(entry.begin(), entry.end(), ring.v.begin() + i * 2 * n.index_dim);
  }
  if (!with_indexer) return beside({s.read(a.query), stored});
  return beside({s.read(a.query), stored, s.read(a.index_query), s.read(a.index_weight), ring});
}

TEST_P(Backends, DsaProject) {
  for (const DType dtype : {DType::bf16, DType::f8_e4m3}) {
    const Matrix x = inputs({}, dtype);
    for (const bool with_indexer : {true, false}) {
      for (const int64_t rows : kRowCounts) {
        if (rows == 0) continue;
        check_row_op(
            GetParam(), rows,
            [&](Side& s, const Rows& r) { return project(s, {}, dtype, with_indexer, x, r); }, {5e-6, 1e-5},
            fmt::format("{} {}", name_of(dtype), with_indexer ? "with indexer" : "shared selection"));
      }
    }
  }
}

// Caches of a prompt that comes whole, and in slices of both families that cut pools.
TEST_P(Backends, DsaProjectWritesTheSameCachesInSlices) {
  constexpr int32_t kTokens = 75;
  const Shape n;
  const Matrix x = random_matrix(81, kTokens, n.width);
  const auto pages_after = [&](Side& s, const std::vector<int32_t>& slices) {
    const kernels::DsaCache cache = empty_cache(s, n);
    int32_t first = 0;
    for (const int32_t rows : slices) {
      const Step step(s, {{rows > 8 ? RowKind::prefill : RowKind::verify, first, rows, 3, 0, {7, 5}, 0}});
      Rows slice;
      for (int32_t r = 0; r < rows; ++r) slice.push_back(first + r);
      s.ops.dsa_project(step.view, project_of(s, n, DType::bf16, true, pick(x, slice), cache));
      first += rows;
    }
    Matrix out(kTokens, n.latent + n.index_dim);
    for (int64_t t = 0; t < kTokens; ++t) {
      const std::byte* page = cache.base + (t < 64 ? 7 : 5) * cache.page_stride;
      const auto latent = s.download<float>(page + t % 64 * n.latent * 4, n.latent);
      const auto key =
          s.download<float>(page + cache.pooled_offset + t % 64 / 4 * n.index_dim * 4, n.index_dim);
      std::copy(latent.begin(), latent.end(), &out.at(t, 0));
      if (t / 4 < kTokens / 4) std::copy(key.begin(), key.end(), &out.at(t, n.latent));
    }
    return out;
  };
  Side reference(oracle()), tested(backend(GetParam()));
  const Matrix whole = pages_after(tested, {kTokens});
  expect_close(whole, pages_after(reference, {kTokens}), {5e-6, 1e-5}, "against the oracle");
  for (const auto& slices : {std::vector<int32_t>{64, 1, 2, 6, 2}, {9, 3, 1, 62}, {6, 5, 64}})
    expect_same_bits(pages_after(tested, slices), whole, "in slices");
}

// Rows of prompts and of the decode family in one step: each product has the bits that it has by itself when
// it is told which rows are whose.
TEST_P(EveryBackend, DsaProjectTakesTheFormOfEachRowsFamily) {
  const Shape n{.width = 1024,
                .q_latent = 512,
                .latent = 512,
                .heads = 4,
                .nope = 256,
                .index_heads = 8,
                .index_dim = 128};
  constexpr int32_t kDecode = 3, kRows = 20;
  const Matrix x = random_matrix(95, kRows, n.width);
  for (const DType dtype : {DType::bf16, DType::f8_e4m3}) {
    Side s(backend(GetParam()));
    std::vector<SequenceSpec> specs;
    for (int32_t slot = 0; slot < kDecode; ++slot)
      specs.push_back({RowKind::decode, 0, 1, slot, 0, {slot}, 0});
    specs.push_back({RowKind::prefill, 0, kRows - kDecode, kDecode, 0, {kDecode}, 0});
    const Step step(s, specs);
    const kernels::DsaProject a = project_of(s, n, dtype, true, x, empty_cache(s, n));
    s.ops.dsa_project(step.view, a);
    const auto expect_product = [&](const View& in, const Weight& w, const View& got, const char* what) {
      const View alone = s.output(kRows, w.out());
      s.ops.linear({in, w, alone, kDecode});
      expect_same_bits(s.read(got), s.read(alone), fmt::format("{} {}", name_of(dtype), what));
    };
    expect_product(a.x, a.weights_proj, a.index_weight, "index weights");
    expect_product(a.x, a.gate, a.index_gate, "index gate");
    expect_product(a.q_latent, a.q_b, a.q, "queries");
    expect_product(a.q_latent, a.wq_b, a.index_query, "index queries");
    const View absorbed = s.output(kRows, n.heads * n.latent);
    s.ops.head_linear({a.q, a.absorb_k, n.heads, absorbed, kDecode});
    expect_same_bits(s.read(a.query), s.read(absorbed), "absorbed queries");
  }
}

}  // namespace
}  // namespace godwit::ops_test
