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

// Columns: absorbed queries, stored latents, then the indexer's queries and weights.
Matrix project(Side& s, Shape n, DType dtype, bool with_indexer, const Matrix& x, const Rows& rows) {
  const auto count = static_cast<int64_t>(rows.size());
  std::vector<SequenceSpec> specs;  // every row is a sequence of its own at position 0
  for (const int64_t r : rows) {
    const auto slot = static_cast<int32_t>(r);
    specs.push_back({RowKind::decode, 0, 1, slot, 0, {slot}, 0});
  }
  const Step step(s, specs);
  kernels::DsaProject a;
  a.x = s.input(pick(x, rows));
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
  const int64_t latent_bytes = 64 * n.latent * 4;
  a.cache.page_stride = latent_bytes + 16 * n.index_dim * 4;
  a.cache.pooled_offset = latent_bytes;
  a.cache.base = s.raw(130 * a.cache.page_stride);
  a.cache.ring_length = 8;
  a.cache.ring_stride = 8 * 2 * n.index_dim * 4;
  a.cache.ring = s.raw(130 * a.cache.ring_stride);
  a.q_latent = s.output(count, n.q_latent);
  a.q = s.output(count, n.heads * n.nope);
  a.latent = s.output(count, n.latent);
  a.query = s.output(count, n.heads * n.latent);
  a.index_query = s.output(count, n.index_heads * n.index_dim);
  a.index_weight = s.output(count, n.index_heads);
  a.index_key = s.output(count, n.index_dim);
  a.index_gate = s.output(count, n.index_dim);
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

}  // namespace
}  // namespace godwit::ops_test
