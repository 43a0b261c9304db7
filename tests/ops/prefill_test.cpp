// Products of prefill rows at shapes that a backend may compute in another form than decode rows.
#include <fmt/core.h>

#include <cmath>

#include "exact_fp8.h"
#include "harness.h"
#include "moe_case.h"

namespace godwit::ops_test {
namespace {

#ifdef GODWIT_CUDA_EMULATED
constexpr int64_t kPrefillRows[] = {1, 16, 35};
#else
constexpr int64_t kPrefillRows[] = {1, 15, 16, 17, 64, 70, 300};
#endif

struct Shape {
  DType dtype;
  int64_t out, in, heads = 1;
};
constexpr Shape kShapes[] = {{DType::bf16, 1024, 128},    {DType::bf16, 16, 4096},
                             {DType::bf16, 288, 1536},    {DType::f8_e4m3, 128, 2048},
                             {DType::f8_e4m3, 1024, 512}, {DType::bf16, 72, 1024},
                             {DType::bf16, 512, 256, 4},  {DType::f8_e4m3, 131, 1024},
                             {DType::f8_e4m3, 256, 1152}, {DType::f32, 24, 1024}};

// Tensor cores may cut off every running sum of 16 products at 24 bits. Those of e4m3 are kept to 13 bits
// behind the largest of a block's products (kernels spec §1), whose sums of 32 are added four times before a
// block is scaled; and prefill's results of them may be bf16, each off by at most 2^-8 of itself.
Tolerance accumulated(const Shape& s) {
  const double step = s.dtype == DType::f8_e4m3 ? 4 * std::ldexp(1.0, -13) + std::ldexp(1.0, -8)
                                                : static_cast<double>(s.in) / 16 * std::ldexp(1.0, -23);
  return {std::max(step, kF32.l2), std::max(step, kF32.max)};
}

Matrix to_bf16_values(Matrix m) {
  for (float& x : m.v) x = to_float(to_bf16(x));
  return m;
}

Matrix multiply(Side& s, const Shape& shape, const Matrix& x, int64_t decode_rows) {
  const View out = s.output(x.rows, shape.heads * shape.out, DType::f32, 4);
  const View in = s.input(x, DType::f32, 8);
  const Weight w = s.weight(302, shape.heads * shape.out, shape.in, shape.dtype);
  if (shape.heads > 1) {
    s.ops.head_linear({in, w.data, shape.heads, out, decode_rows});
  } else {
    s.ops.linear({in, w, out, decode_rows});
  }
  return s.read(out);
}

std::string name(const Shape& s) {
  return fmt::format("{} {} x {}x{}", name_of(s.dtype), s.heads, s.out, s.in);
}

// Inputs that bf16 holds: then no form may round them.
TEST_P(Backends, PrefillProducts) {
  for (const Shape& shape : kShapes) {
    for (const int64_t rows : kPrefillRows) {
      const Matrix x = to_bf16_values(random_matrix(301, rows, shape.heads * shape.in));
      check_row_op(
          GetParam(), rows, [&](Side& s, const Rows& r) { return multiply(s, shape, pick(x, r), 0); },
          accumulated(shape), name(shape));
    }
  }
}

// Rounded to bf16, each is off by at most 2^-9 of the power of two above it: by 2^-8 / sqrt(3) of itself in
// the mean of squares, and so is a sum of many of them.
TEST_P(Backends, PrefillProductsOfAnyInput) {
  constexpr Tolerance kRounded{0x1p-8 / 1.7320508, 0x1p-8};
  for (const Shape& shape : kShapes) {
    if (shape.dtype == DType::f8_e4m3) continue;  // quantised exactly as the definition says
    const Matrix x = random_matrix(303, 70, shape.heads * shape.in);
    check_row_op(
        GetParam(), 70, [&](Side& s, const Rows& r) { return multiply(s, shape, pick(x, r), 0); }, kRounded,
        name(shape));
  }
}

// A step of both families gives each row the bits that it has in a step of its family alone.
TEST_P(EveryBackend, FamiliesOfAStepDoNotSeeEachOther) {
  Side s(backend(GetParam()));
  for (const Shape& shape : kShapes) {
    constexpr int64_t kRows = 40, kDecode = 7;
    const Matrix x = random_matrix(304, kRows, shape.heads * shape.in);
    Rows first, rest;
    for (int64_t r = 0; r < kRows; ++r) (r < kDecode ? first : rest).push_back(r);
    const Matrix mixed = multiply(s, shape, x, kDecode);
    expect_same_bits(pick(mixed, first), multiply(s, shape, pick(x, first), kernels::kAllRows), name(shape));
    expect_same_bits(pick(mixed, rest), multiply(s, shape, pick(x, rest), 0), name(shape));
  }
}

TEST_P(EveryBackend, NanStaysInItsPrefillRow) {
  Side s(backend(GetParam()));
  for (const Shape& shape : kShapes) {
    Matrix x = random_matrix(305, 35, shape.heads * shape.in);
    const Matrix clean = multiply(s, shape, x, 0);
    for (const int64_t row : {3, 33}) x.at(row, 100) = std::nanf("");
    const Matrix got = multiply(s, shape, x, 0);
    Rows others;
    for (int64_t r = 0; r < 35; ++r)
      if (r != 3 && r != 33) others.push_back(r);
    expect_same_bits(pick(got, others), pick(clean, others), name(shape));
    for (int64_t c = 0; c < shape.out; ++c) EXPECT_TRUE(std::isnan(got.at(33, c))) << name(shape);
  }
}

struct ExpertShape {
  int64_t experts, chosen, inner, shared, width;
  int32_t first, held;
};

constexpr float kLimit = 2;

std::vector<kernels::ExpertWeights> table(Side& s, const ExpertShape& shape) {
  std::vector<kernels::ExpertWeights> all;
  for (int32_t e = shape.first; e < shape.first + shape.held; ++e) {
    const auto seed = static_cast<uint64_t>(400 + 10 * e);
    all.push_back({exact_weight(s, seed, shape.inner, shape.width),
                   exact_weight(s, seed + 2, shape.inner, shape.width),
                   s.weight(seed + 4, shape.width, shape.inner, DType::f8_e4m3)});
  }
  return all;
}
kernels::ExpertWeights shared_expert(Side& s, const ExpertShape& shape) {
  return {exact_weight(s, 380, shape.shared, shape.width), exact_weight(s, 382, shape.shared, shape.width),
          s.weight(384, shape.width, shape.shared, DType::f8_e4m3)};
}

// Rows of which no second product quantises anything near a tie.
Matrix expert_rows(const ExpertShape& shape, int64_t rows) {
  return without_near_ties(exact_rows(371, 8 * rows, shape.width), rows, 128,
                           [&](Side& s, const Matrix& some) {
                             const auto inner_of = [&](const kernels::ExpertWeights& e) {
                               const View in = s.input(some), gate_up = s.output(some.rows, 2 * e.gate.out());
                               s.ops.linear({in, e.gate, gate_up.col_range(0, e.gate.out())});
                               s.ops.linear({in, e.up, gate_up.col_range(e.gate.out(), e.gate.out())});
                               const View inner = s.output(some.rows, e.gate.out());
                               s.ops.swiglu({gate_up, kLimit, inner});
                               return s.read(inner);
                             };
                             std::vector<Matrix> parts;
                             for (const auto& e : table(s, shape)) parts.push_back(inner_of(e));
                             parts.push_back(inner_of(shared_expert(s, shape)));
                             return beside(parts);
                           });
}

Matrix moe(Side& s, const ExpertShape& shape, const Matrix& x, int64_t decode_rows) {
  const kernels::Moe a = moe_of(
      s, {shape.experts, shape.chosen, shape.inner, DType::f8_e4m3, shape.first, kLimit, decode_rows},
      s.input(x), s.weight(372, shape.experts, shape.width, DType::bf16),
      s.floats(random_matrix(373, 1, shape.experts, 0.3f).v), table(s, shape), shared_expert(s, shape));
  s.ops.moe(a);
  return s.read(a.out);
}

// More rows than one tile for some expert, none for another; widths that end within a tile of columns.
TEST_P(Backends, PrefillMoe) {
  constexpr ExpertShape kExperts[] = {{3, 2, 128, 128, 256, 0, 3}, {9, 4, 256, 128, 384, 2, 2}};
#ifdef GODWIT_CUDA_EMULATED
  constexpr int64_t kMost = 131, kMoeRows[] = {kMost};
  const Tolerance tolerance = kF32;  // its products are exact here
#else
  constexpr int64_t kMost = 300, kMoeRows[] = {1, 70, kMost};
  // Products of e4m3 operands are off by up to 4 x 2^-13 (see above), so one in 32 of the inner values may
  // lie near enough to a tie of two codes to get the other, which is 1/16 away in the mean: sqrt(1/32) / 16
  // of the norm.
  const Tolerance tolerance = GetParam() == "cuda" ? Tolerance{1.1e-2, 3.3e-2} : kF32;
#endif
  for (const ExpertShape& shape : kExperts) {
    const Matrix x = expert_rows(shape, kMost);
    for (const int64_t rows : kMoeRows) {
      check_row_op(
          GetParam(), rows, [&](Side& s, const Rows& r) { return moe(s, shape, pick(x, r), 0); }, tolerance,
          fmt::format("experts {}x{}", shape.inner, shape.width));
    }
    Side s(backend(GetParam()));
    Rows first, rest;
    for (int64_t r = 0; r < kMost; ++r) (r < 5 ? first : rest).push_back(r);
    const Matrix mixed = moe(s, shape, x, 5);
    expect_same_bits(pick(mixed, first), moe(s, shape, pick(x, first), kernels::kAllRows), "decode rows");
    expect_same_bits(pick(mixed, rest), moe(s, shape, pick(x, rest), 0), "prefill rows");
  }
}

// So many rows of one expert that they make several tiles of rows, the last of them short; and as many blocks
// of K as a ring has stages.
TEST_P(Backends, PrefillMoeOfOneExpert) {
  struct Case {
    ExpertShape shape;
    int64_t most;
  };
  constexpr Case kCases[] = {{{1, 1, 128, 128, 128, 0, 1}, 330}, {{1, 1, 512, 128, 512, 0, 1}, 140}};
  constexpr int64_t kFew = 70;
#ifdef GODWIT_CUDA_EMULATED
  const Tolerance tolerance = kF32;
#else
  const Tolerance tolerance = GetParam() == "cuda" ? Tolerance{1.1e-2, 3.3e-2} : kF32;  // see above
#endif
  for (const auto& [shape, most] : kCases) {
    const Matrix x = expert_rows(shape, most);
    check_row_op(
        GetParam(), most, [&](Side& s, const Rows& r) { return moe(s, shape, pick(x, r), 0); }, tolerance,
        fmt::format("one expert of {}", shape.inner));
    // No row sees the tile that it is in.
    Side s(backend(GetParam()));
    Rows all, last;
    for (int64_t r = 0; r < most; ++r) {
      all.push_back(r);
      if (r >= most - kFew) last.push_back(r);
    }
    expect_same_bits(pick(moe(s, shape, pick(x, all), 0), last), moe(s, shape, pick(x, last), 0),
                     "its last rows");
  }
}

// An FFN of prompt rows, dense or shared, is its products and SwiGLU, whatever lies between them.
TEST_P(EveryBackend, PrefillFfnIsItsProducts) {
  constexpr int64_t kWidth = 1024, kInner = 512;
  for (const int64_t rows : {1, 16, 21}) {
    for (const int64_t decode_rows : {0, 5}) {
      Side s(backend(GetParam()));
      const Matrix values = random_matrix(396, rows, kWidth, 3);
      const View x = s.input(values);
      const auto weight = [&](uint64_t seed, int64_t out, int64_t in) {
        return s.weight(seed, out, in, DType::f8_e4m3);
      };
      const View between = s.output(rows, 2 * kInner), inner = s.output(rows, kInner);
      const kernels::Ffn a{
          x,          weight(397, kInner, kWidth), weight(398, kInner, kWidth), weight(399, kWidth, kInner),
          kLimit,     s.output(rows, 2 * kInner),  s.output(rows, kInner),      s.output(rows, kWidth),
          decode_rows};
      s.ops.ffn(a);
      s.ops.linear({x, a.gate, between.col_range(0, kInner), decode_rows});
      s.ops.linear({x, a.up, between.col_range(kInner, kInner), decode_rows});
      s.ops.swiglu({between, kLimit, inner});
      const View out = s.output(rows, kWidth);
      s.ops.linear({inner, a.down, out, decode_rows});
      expect_same_bits(s.read(a.out), s.read(out), fmt::format("{} rows, {} of decode", rows, decode_rows));

      // The shared expert of a MoE layer, too.
      const kernels::ExpertWeights routed{weight(380, 128, kWidth), weight(381, 128, kWidth),
                                          weight(382, kWidth, 128)};
      const kernels::Moe m = moe_of(
          s, {3, 2, 128, DType::f8_e4m3, 0, kLimit, decode_rows}, x, s.weight(372, 3, kWidth, DType::bf16),
          s.floats(random_matrix(373, 1, 3, 0.3f).v), {routed, routed, routed}, {a.gate, a.up, a.down});
      s.ops.moe(m);
      const View together = s.output(rows, kWidth);
      s.ops.experts(m.experts);
      s.ops.add({m.experts.out, out, together});
      expect_same_bits(s.read(m.out), s.read(together), fmt::format("MoE, {} rows", rows));
    }
  }
}

// `gap`: floats between rows of y and between normed rows.
Matrix boundary(Side& s, int64_t width, const Matrix& streams, const Matrix& mix_in, const Matrix& y,
                bool expands, int64_t decode_rows, int64_t gap = 0) {
  constexpr int64_t kStreams = 4, kMapping = 24;
  const View residual = s.input(streams), mix = s.input(mix_in), x = s.output(streams.rows, width);
  const View normed = s.output(streams.rows, width, DType::f32, gap);
  kernels::MhcBoundary a;
  a.expand = {mix, s.input(y, DType::f32, gap), residual};
  a.collapse = {residual,
                {s.weight(393, kMapping, kStreams * width, DType::bf16).data,
                 s.floats(random_matrix(394, 1, kMapping).v), s.floats({0.5f, 1.0f, 1.5f})},
                1e-5f,
                1e-6f,
                20,
                mix,
                x,
                decode_rows};
  a.norm_weight = s.floats(random_matrix(395, 1, width, 0.5f, 1).v);
  a.normed = normed;
  if (expands) {
    s.ops.mhc_boundary(a);
    return beside({s.read(residual), s.read(mix), s.read(normed)});
  }
  s.ops.mhc_collapse(a.collapse);
  return beside({s.read(mix), s.read(x)});
}

TEST_P(Backends, PrefillBoundary) {
  for (const int64_t width : {16, 144, 384, 1152}) {
    for (const bool expands : {true, false}) {
      constexpr int64_t kRows = 35;
      const Matrix streams = random_matrix(390, kRows, 4 * width), mix = random_matrix(391, kRows, 20);
      const Matrix y = random_matrix(392, kRows, width);
      const auto some = [&](Side& s, const Rows& r, int64_t decode_rows) {
        return boundary(s, width, pick(streams, r), pick(mix, r), pick(y, r), expands, decode_rows);
      };
      check_row_op(
          GetParam(), kRows, [&](Side& s, const Rows& r) { return some(s, r, 0); }, {1e-5, 2e-5},
          fmt::format("width {}", width));
      Side s(backend(GetParam()));
      Rows first, rest;
      for (int64_t r = 0; r < kRows; ++r) (r < 3 ? first : rest).push_back(r);
      const Matrix mixed = some(s, all_rows(kRows), 3);
      expect_same_bits(pick(mixed, first), some(s, first, kernels::kAllRows), "decode rows");
      expect_same_bits(pick(mixed, rest), some(s, rest, 0), "prefill rows");
    }
  }
}

// Expanded rows of one width.
void check_boundary(const std::string& name, int64_t rows, int64_t width) {
  const Matrix streams = random_matrix(386, rows, 4 * width), mix = random_matrix(387, rows, 20);
  const Matrix y = random_matrix(388, rows, width);
  check_row_op(
      name, rows,
      [&](Side& s, const Rows& r) {
        return boundary(s, width, pick(streams, r), pick(mix, r), pick(y, r), true, 0);
      },
      {1e-5, 2e-5}, fmt::format("width {}", width));
}

// So many tiles of rows that each cluster walks more of them than it holds.
TEST_P(Backends, PrefillBoundaryOfManyTiles) {
#ifdef GODWIT_CUDA_EMULATED
  constexpr int64_t kRows = 75;
#else
  constexpr int64_t kRows = 1030;
#endif
  for (const int64_t width : {128, 1152}) check_boundary(GetParam(), kRows, width);
}

TEST_P(Backends, PrefillBoundaryOfTheRealShape) {
  check_boundary(GetParam(), 35, 4096);
}

// Rows that no vector of four values can read.
TEST_P(Backends, PrefillBoundaryOfUnalignedRows) {
  constexpr int64_t kRows = 19, kWidth = 256;
  const Matrix streams = random_matrix(396, kRows, 4 * kWidth), mix = random_matrix(397, kRows, 20);
  const Matrix y = random_matrix(398, kRows, kWidth);
  check_row_op(
      GetParam(), kRows,
      [&](Side& s, const Rows& r) {
        return boundary(s, kWidth, pick(streams, r), pick(mix, r), pick(y, r), true, 0, 1);
      },
      {1e-5, 2e-5}, "rows of 257");
}

}  // namespace
}  // namespace godwit::ops_test
