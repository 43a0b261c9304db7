// Activations as bf16, on the backends that have them (Ops::activations). What an op reads as bf16 counts as
// the same values in f32, and what it writes is the f32 result, rounded once: both are checked against the
// same op on f32 rows, which other tests compare with the oracle.
#include <fmt/core.h>

#include "harness.h"
#include "kda_world.h"
#include "moe_case.h"

namespace godwit::ops_test {
namespace {

class Bf16Activations : public testing::TestWithParam<std::string> {};

std::vector<std::string> backends_of_bf16() {
  std::vector<std::string> names;
  for (const std::string& name : backends()) {
    const kernels::Dims real{.hidden = 4096, .kda_heads = 16, .kda_key = 128};
    if (backend(name).activations(real) == DType::bf16) names.push_back(name);
  }
  return names;
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Bf16Activations);  // a machine of CPUs
INSTANTIATE_TEST_SUITE_P(Ops, Bf16Activations, testing::ValuesIn(backends_of_bf16()),
                         [](const auto& name) { return name.param; });

Matrix rounded(Matrix m) {
  for (float& x : m.v) x = to_float(to_bf16(x));
  return m;
}
void expect_rounded(const Matrix& got, const Matrix& f32, const std::string& what) {
  expect_same_bits(got, rounded(f32), what);
}

#ifdef GODWIT_CUDA_EMULATED
constexpr int64_t kRows[] = {1, 21};
#else
constexpr int64_t kRows[] = {1, 2, 8, 9, 17, 33, 65, 150};
#endif

struct Shape {
  int64_t out, in, heads = 1;
};
// Of no whole blocks; of the decode form; of that and the library's.
constexpr Shape kShapes[] = {{15, 17},   {49, 131},    {3, 40, 3}, {40, 128},
                             {257, 512}, {64, 256, 4}, {1024, 512}};

Matrix product(Side& s, const Shape& shape, DType weights, const View& x, int64_t decode_rows) {
  const View out = s.output(x.rows, shape.heads * shape.out, DType::f32, 4);
  const Weight w = s.weight(402, shape.heads * shape.out, shape.in, weights);
  if (shape.heads > 1) {
    s.ops.head_linear({x, w.data, shape.heads, out, decode_rows});
  } else {
    s.ops.linear({x, w, out, decode_rows});
  }
  return s.read(out);
}

// Products of bf16 are exact, so only the order of the sums may differ. A tensor core may cut off every
// running sum of 16 products at 24 bits.
Tolerance summed(int64_t in) {
  const double step = static_cast<double>(in) / 16 * 0x1p-23;
  return {std::max(step, kF32.l2), std::max(step, kF32.max)};
}

TEST_P(Bf16Activations, ProductsReadThem) {
  for (const DType weights : {DType::f32, DType::bf16, DType::f8_e4m3}) {
    for (const Shape& shape : kShapes) {
      if (weights == DType::f8_e4m3 && shape.heads > 1) continue;
      for (const int64_t rows : kRows) {
        for (const int64_t decode_rows : {rows, int64_t{0}, rows / 2}) {
          Side s(backend(GetParam()));
          const Matrix x = rounded(random_matrix(401, rows, shape.heads * shape.in));
          const Matrix expected = product(s, shape, weights, s.input(x), decode_rows);
          const std::string what = fmt::format("{} {} x {}x{}, {} rows, {} of decode", name_of(weights),
                                               shape.heads, shape.out, shape.in, rows, decode_rows);
          for (const int64_t gap : {0, 8}) {
            const Matrix got = product(s, shape, weights, s.input(x, DType::bf16, gap), decode_rows);
            if (weights == DType::f8_e4m3) {
              expect_same_bits(got, expected, what);  // the codes are the same
            } else {
              expect_close(got, expected, summed(shape.in), what);
            }
          }
        }
      }
    }
  }
}

// As many rows of weights and as much K as bring a second chunk to every CTA and every stage of its rings
// back in use: where its warpgroups share K, and where (an odd number of blocks) each has chunks of its own.
// And one chunk a CTA, whose turns have several stages.
TEST_P(Bf16Activations, ProductsOfManyChunks) {
#ifdef GODWIT_CUDA_EMULATED
  constexpr Shape kMany[] = {{330, 1664}, {1400, 320}, {155, 2048}};
  constexpr int64_t kFew[] = {1, 21};
#else
  constexpr Shape kMany[] = {{8700, 1664}, {37000, 320}, {4110, 2048}};
  constexpr int64_t kFew[] = {1, 9, 33, 65};
#endif
  for (const Shape& shape : kMany) {
    for (const int64_t rows : kFew) {
      Side s(backend(GetParam()));
      const Matrix x = rounded(random_matrix(403, rows, shape.in));
      const Matrix expected = product(s, shape, DType::bf16, s.input(x), rows);
      const Matrix got = product(s, shape, DType::bf16, s.input(x, DType::bf16), rows);
      expect_close(got, expected, summed(shape.in), fmt::format("{}x{}, {} rows", shape.out, shape.in, rows));
    }
  }
}

TEST_P(Bf16Activations, RowsOfAProductDoNotSeeEachOther) {
  for (const Shape& shape : kShapes) {
    const Matrix x = rounded(random_matrix(403, 35, shape.heads * shape.in));
    for (const int64_t decode_rows : {kernels::kAllRows, int64_t{0}}) {
      check_row_op(
          GetParam(), 35,
          [&](Side& s, const Rows& r) {
            return product(s, shape, DType::bf16, s.input(pick(x, r), DType::bf16), decode_rows);
          },
          summed(shape.in), fmt::format("{} x {}x{}", shape.heads, shape.out, shape.in));
    }
  }
}

TEST_P(Bf16Activations, ProductsOfBothKindsTogether) {
  Side s(backend(GetParam()));
  const View narrow = s.input(random_matrix(404, 9, 256), DType::bf16),
             wide = s.input(random_matrix(405, 9, 256));
  std::vector<kernels::Linear> together, alone;
  for (const View& x : {narrow, wide, narrow, narrow, wide}) {
    for (const DType weights : {DType::f8_e4m3, DType::bf16}) {
      const Weight w = s.weight(406, 40, 256, weights);
      together.push_back({x, w, s.output(9, 40)});
      alone.push_back({x, w, s.output(9, 40)});
    }
  }
  s.ops.linears(together);
  for (const kernels::Linear& a : alone) s.ops.linear(a);
  for (size_t i = 0; i < alone.size(); ++i)
    expect_same_bits(s.read(together[i].out), s.read(alone[i].out), fmt::format("member {}", i));
}

TEST_P(Bf16Activations, NormsWriteThem) {
  for (const int64_t width : {96, 97, 256, 1000}) {
    Side s(backend(GetParam()));
    const View x = s.input(random_matrix(411, 7, width, 3));
    const float* weight = s.floats(random_matrix(412, 1, width, 0.5f, 1).v);
    const View wide = s.output(7, width), narrow = s.output(7, width, DType::bf16, 4);
    s.ops.rms_norm({x, weight, 1e-5f, wide});
    s.ops.rms_norm({x, weight, 1e-5f, narrow});
    expect_rounded(s.read(narrow), s.read(wide), fmt::format("rms_norm of {}", width));
  }
  for (const int64_t d : {48, 128}) {
    Side s(backend(GetParam()));
    const View o = s.input(random_matrix(413, 7, 3 * d)), gate = s.input(random_matrix(414, 7, 3 * d));
    const float* weight = s.floats(random_matrix(415, 1, d, 0.5f, 1).v);
    const View wide = s.output(7, 3 * d), narrow = s.output(7, 3 * d, DType::bf16);
    s.ops.gated_norm({o, gate, weight, d, 1e-5f, wide});
    s.ops.gated_norm({o, gate, weight, d, 1e-5f, narrow});
    expect_rounded(s.read(narrow), s.read(wide), fmt::format("gated_norm of {}", d));
  }
}

// The boundary of decode and of prompt rows, and the codes it makes for an FP8 product: those of what was
// rounded.
TEST_P(Bf16Activations, MhcBoundaryWritesThem) {
  constexpr int64_t kCount = 19;
  for (const int64_t width : {96, 256}) {
    for (const int64_t decode_rows : {kernels::kAllRows, int64_t{0}, int64_t{5}}) {
      Side s(backend(GetParam()));
      const Matrix streams = random_matrix(421, kCount, 4 * width), mix = random_matrix(422, kCount, 20);
      const View y = s.input(random_matrix(423, kCount, width));
      const kernels::MhcWeights weights{s.weight(424, 24, 4 * width, DType::bf16).data,
                                        s.floats(random_matrix(425, 1, 24, 0.5f).v), s.floats({1, 1, 1})};
      const Weight w = s.weight(426, 40, width, DType::f8_e4m3);
      const auto boundary = [&](const View& normed) {
        const View residual = s.input(streams), mixed = s.input(mix);
        kernels::MhcBoundary a;
        a.expand = {mixed, y, residual};
        a.collapse = {residual, weights, 1e-5f, 1e-6f, 20, mixed, s.output(kCount, width), decode_rows};
        a.norm_weight = s.floats(random_matrix(427, 1, width, 0.5f, 1).v);
        a.normed = normed;
        a.feeds_fp8 = true;
        return a;
      };
      const View wide = s.output(kCount, width), narrow = s.output(kCount, width, DType::bf16);
      s.ops.mhc_boundary(boundary(wide));
      const kernels::MhcBoundary last = boundary(narrow);
      const View out = s.output(kCount, 40);
      s.ops.mhc_boundary(last);
      s.ops.linear({narrow, w, out});
      const std::string what = fmt::format("width {}, {} of decode", width, decode_rows);
      expect_rounded(s.read(narrow), s.read(wide), what);
      const View again = s.output(kCount, 40);
      s.ops.linear({s.input(s.read(narrow)), w, again});
      expect_same_bits(s.read(out), s.read(again), what + ", codes");
    }
  }
}

TEST_P(Bf16Activations, KdaMixWritesThem) {
  for (const int64_t d : {48, 128}) {
    KdaShape shape{.heads = 2, .d = d};
    const auto run = [&](DType type) {
      Side s(backend(GetParam()));
      shape.out = type;
      KdaWorld world(s, shape);
      const auto sequence = [](kernels::RowKind kind, int64_t first, int32_t rows, int32_t slot) {
        return SequenceSpec{.kind = kind, .first = first, .rows = rows, .slot = slot, .stream = 7};
      };
      return world.mix({sequence(kernels::RowKind::decode, 0, 1, 1),
                        sequence(kernels::RowKind::verify, 0, 6, 2),
                        sequence(kernels::RowKind::prefill, 0, 70, 3)});
    };
    expect_rounded(run(DType::bf16), run(DType::f32), fmt::format("heads of {}", d));
  }
}

struct ExpertShape {
  int64_t experts, chosen, inner, shared, width;
};

// Router, routed experts and the shared one: of no whole blocks, of the decode form, and of prompt rows.
TEST_P(Bf16Activations, MoeReadsThem) {
  constexpr float kLimit = 2;
  for (const ExpertShape& shape : {ExpertShape{10, 3, 48, 56, 96}, ExpertShape{12, 4, 128, 256, 256}}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f8_e4m3}) {
      for (const int64_t rows : {1, 21}) {
        for (const int64_t decode_rows : {rows, int64_t{0}}) {
          Side s(backend(GetParam()));
          std::vector<kernels::ExpertWeights> table;
          for (int64_t e = 0; e < shape.experts; ++e) {
            const auto seed = static_cast<uint64_t>(430 + 10 * e);
            table.push_back({s.weight(seed, shape.inner, shape.width, dtype),
                             s.weight(seed + 1, shape.inner, shape.width, dtype),
                             s.weight(seed + 2, shape.width, shape.inner, dtype)});
          }
          const auto moe = [&](const View& x) {
            const kernels::Moe a =
                moe_of(s, {shape.experts, shape.chosen, shape.inner, dtype, 0, kLimit, decode_rows}, x,
                       s.weight(427, shape.experts, shape.width, DType::bf16),
                       s.floats(random_matrix(428, 1, shape.experts, 0.3f).v), table,
                       {s.weight(421, shape.shared, shape.width, dtype),
                        s.weight(422, shape.shared, shape.width, dtype),
                        s.weight(423, shape.width, shape.shared, dtype)});
            s.ops.moe(a);
            return s.read(a.out);
          };
          const Matrix x = rounded(random_matrix(429, rows, shape.width, 3));
          const Matrix expected = moe(s.input(x)), got = moe(s.input(x, DType::bf16));
          const std::string what = fmt::format("{} experts of {}, {} rows, {} of decode", name_of(dtype),
                                               shape.inner, rows, decode_rows);
          // A prompt's logits are a product of bf16 weights, too.
          if (dtype == DType::bf16 || (dtype == DType::f8_e4m3 && decode_rows == 0)) {
            expect_close(got, expected, kF32, what);
          } else {
            expect_same_bits(got, expected, what);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace godwit::ops_test
