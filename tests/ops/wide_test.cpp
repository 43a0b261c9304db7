// Rows of whole blocks of 128 bytes, as the real model's: the shapes that fast forms take. Several row counts
// cross every tile of columns; several widths of K cross every way of sharing K among warps.
#include <fmt/core.h>

#include "exact_fp8.h"
#include "harness.h"
#include "moe_case.h"

namespace godwit::ops_test {
namespace {

constexpr int64_t kRows[] = {1, 2, 8, 9, 17, 33, 65, 150};

TEST_P(Backends, LinearOfWholeBlocks) {
  constexpr int64_t kShapes[][2] = {{16, 128},  {49, 256},  {200, 384}, {257, 512},
                                    {72, 1536}, {40, 2048}, {33, 3072}, {147, 4096}};
  for (const DType dtype : {DType::bf16, DType::f8_e4m3}) {
    for (const auto& [out_width, in_width] : kShapes) {
      for (const int64_t rows : kRows) {
        const Matrix x = random_matrix(61, rows, in_width);
        check_row_op(
            GetParam(), rows,
            [&](Side& s, const Rows& r) {
              const View out = s.output(static_cast<int64_t>(r.size()), out_width, DType::f32, 3);
              s.ops.linear(
                  {s.input(pick(x, r), DType::f32, 4), s.weight(62, out_width, in_width, dtype), out});
              return s.read(out);
            },
            kF32, fmt::format("{} {}x{}", name_of(dtype), out_width, in_width));
      }
    }
  }
}

// Products of both types, of two inputs, of every size, in one call.
TEST_P(Backends, LinearsTogetherAreLinearsAlone) {
  struct Member {
    int64_t out, in;
    DType dtype;
    int input;
  };
  constexpr Member kMembers[] = {{1536, 1024, DType::f8_e4m3, 0}, {16, 1024, DType::bf16, 0},
                                 {130, 1024, DType::f8_e4m3, 0},  {5, 72, DType::bf16, 1},
                                 {300, 1024, DType::bf16, 0},     {48, 1024, DType::f32, 0},
                                 {64, 256, DType::f8_e4m3, 2},    {96, 256, DType::bf16, 2},
                                 {1, 1024, DType::bf16, 0},       {64, 256, DType::f8_e4m3, 2}};
  for (const int64_t rows : kRows) {
    Side s(backend(GetParam()));
    const View inputs[] = {s.input(random_matrix(63, rows, 1024)), s.input(random_matrix(64, rows, 72)),
                           s.input(random_matrix(65, rows, 256))};
    std::vector<kernels::Linear> together, alone;
    for (const Member& m : kMembers) {
      const Weight w = s.weight(66, m.out, m.in, m.dtype);
      together.push_back({inputs[m.input], w, s.output(rows, m.out)});
      alone.push_back({inputs[m.input], w, s.output(rows, m.out)});
    }
    s.ops.linears(together);
    for (const kernels::Linear& a : alone) s.ops.linear(a);
    for (size_t i = 0; i < alone.size(); ++i) {
      expect_same_bits(s.read(together[i].out), s.read(alone[i].out),
                       fmt::format("{} rows, member {}", rows, i));
    }
  }
}

TEST_P(Backends, HeadLinearOfWholeBlocks) {
  constexpr int64_t kShapes[][3] = {{16, 512, 256}, {16, 256, 512}, {3, 96, 128}, {2, 64, 1024}};
  for (const auto& [heads, out_width, in_width] : kShapes) {
    for (const int64_t rows : {int64_t{1}, int64_t{7}, int64_t{40}}) {
      const Matrix x = random_matrix(67, rows, heads * in_width);
      check_row_op(
          GetParam(), rows,
          [&](Side& s, const Rows& r) {
            const View out = s.output(static_cast<int64_t>(r.size()), heads * out_width);
            const View w = s.weight(68, heads * out_width, in_width, DType::bf16).data;
            s.ops.head_linear({s.input(pick(x, r)), w, heads, out});
            return s.read(out);
          },
          kF32, fmt::format("{} heads {}x{}", heads, out_width, in_width));
    }
  }
}

// Large and tiny values, and some that bf16 cannot hold: nothing of x may be lost.
TEST_P(Backends, LinearKeepsAllBitsOfItsInput) {
  constexpr int64_t kIn = 256;
  Matrix x = random_matrix(69, 5, kIn);
  for (int64_t c = 0; c < kIn; ++c) {
    x.at(1, c) = 1 + static_cast<float>(c) * 0x1p-23f;
    x.at(2, c) *= 1e20f;
    x.at(3, c) *= 1e-20f;
    x.at(4, c) = c == 77 ? 0x1.fffffep+10f : 0;
  }
  check_row_op(
      GetParam(), 5,
      [&](Side& s, const Rows& r) {
        const View out = s.output(static_cast<int64_t>(r.size()), 40);
        s.ops.linear({s.input(pick(x, r)), s.weight(70, 40, kIn, DType::bf16), out});
        Matrix y = s.read(out);
        for (size_t i = 0; i < r.size(); ++i) {
          const float unit = r[i] == 2 ? 1e-20f : r[i] == 3 ? 1e20f : r[i] == 4 ? 1e-3f : 1.0f;
          for (int64_t c = 0; c < y.cols; ++c) y.at(static_cast<int64_t>(i), c) *= unit;
        }
        return y;
      },
      kF32, "rows of many sizes");
}

struct ExpertShape {
  int64_t experts, chosen, inner, shared, width;
  int32_t first, held;
};

Weight exact_or_random(Side& s, uint64_t seed, int64_t out, int64_t in, DType dtype) {
  return dtype == DType::f8_e4m3 ? exact_weight(s, seed, out, in) : s.weight(seed, out, in, dtype);
}

// A MoE layer of so many rows against the oracle. e4m3: of rows that requantise alike, out of `candidates` a
// row.
void check_moe(const std::string& name, DType dtype, const ExpertShape& shape,
               std::initializer_list<int64_t> row_counts, int64_t candidates = 8) {
  constexpr float kLimit = 2;
  const auto table = [&](Side& s) {
    std::vector<kernels::ExpertWeights> all;
    for (int32_t e = shape.first; e < shape.first + shape.held; ++e) {
      const auto seed = static_cast<uint64_t>(200 + 10 * e);
      all.push_back({exact_or_random(s, seed, shape.inner, shape.width, dtype),
                     exact_or_random(s, seed + 2, shape.inner, shape.width, dtype),
                     s.weight(seed + 4, shape.width, shape.inner, dtype)});
    }
    return all;
  };
  const auto inner_of = [&](Side& s, const Matrix& x, const Weight& gate, const Weight& up) {
    const View in = s.input(x), gate_up = s.output(x.rows, 2 * gate.out());
    s.ops.linear({in, gate, gate_up.col_range(0, gate.out())});
    s.ops.linear({in, up, gate_up.col_range(gate.out(), gate.out())});
    const View inner = s.output(x.rows, gate.out());
    s.ops.swiglu({gate_up, kLimit, inner});
    return s.read(inner);
  };
  const int64_t most = std::max(row_counts);
  Matrix x = random_matrix(71, most, shape.width, 3);
  if (dtype == DType::f8_e4m3) {
    x = without_near_ties(exact_rows(71, candidates * most, shape.width), most, 128,
                          [&](Side& s, const Matrix& some) {
                            std::vector<Matrix> parts;
                            for (const auto& e : table(s)) parts.push_back(inner_of(s, some, e.gate, e.up));
                            parts.push_back(inner_of(s, some, exact_weight(s, 180, shape.shared, shape.width),
                                                     exact_weight(s, 182, shape.shared, shape.width)));
                            return beside(parts);
                          });
  }
  for (const int64_t rows : row_counts) {
    check_row_op(
        name, rows,
        [&](Side& s, const Rows& r) {
          const kernels::Moe a =
              moe_of(s, {shape.experts, shape.chosen, shape.inner, dtype, shape.first, kLimit},
                     s.input(pick(x, r)), s.weight(72, shape.experts, shape.width, DType::bf16),
                     s.floats(random_matrix(73, 1, shape.experts, 0.3f).v), table(s),
                     {exact_or_random(s, 180, shape.shared, shape.width, dtype),
                      exact_or_random(s, 182, shape.shared, shape.width, dtype),
                      s.weight(184, shape.width, shape.shared, dtype)});
          s.ops.moe(a);
          return s.read(a.out);
        },
        kF32, fmt::format("{} {} experts {}x{}", name_of(dtype), shape.experts, shape.inner, shape.width));
  }
}

// The shared expert is as wide as a routed one, or not; all experts are held, or some; rows of every tile.
TEST_P(Backends, MoeOfWholeBlocks) {
  constexpr ExpertShape kShapes[] = {
      {12, 4, 512, 128, 1024, 3, 1}, {20, 8, 128, 256, 256, 7, 3}, {3, 2, 640, 128, 128, 1, 1}};
  for (const DType dtype : {DType::bf16, DType::f8_e4m3}) {
    for (const ExpertShape& shape : kShapes) check_moe(GetParam(), dtype, shape, {1, 2, 3, 17, 40});
  }
}

// So many pairs of gate and up rows, and turns of each, that blocks take them from a counter.
TEST_P(Backends, MoeOfManyChunks) {
#ifdef GODWIT_CUDA_EMULATED
  check_moe(GetParam(), DType::bf16, {6, 4, 256, 128, 1536, 0, 6}, {9});
#else
  check_moe(GetParam(), DType::bf16, {72, 8, 256, 128, 1536, 0, 72}, {40});
#endif
}

// The rows of x through a layer of e4m3 experts of any values.
Matrix moe_of_any(const std::string& name, const ExpertShape& shape, const Matrix& x) {
  Side s(backend(name));
  const auto expert = [&](uint64_t seed, int64_t inner) {
    return kernels::ExpertWeights{s.weight(seed, inner, shape.width, DType::f8_e4m3),
                                  s.weight(seed + 1, inner, shape.width, DType::f8_e4m3),
                                  s.weight(seed + 2, shape.width, inner, DType::f8_e4m3)};
  };
  std::vector<kernels::ExpertWeights> table;
  for (int32_t e = 0; e < shape.held; ++e)
    table.push_back(expert(300 + 3 * static_cast<uint64_t>(e), shape.inner));
  const kernels::Moe a =
      moe_of(s, {shape.experts, shape.chosen, shape.inner, DType::f8_e4m3, shape.first}, s.input(x),
             s.weight(72, shape.experts, shape.width, DType::bf16),
             s.floats(random_matrix(73, 1, shape.experts, 0.3f).v), table, expert(290, shape.shared));
  s.ops.moe(a);
  return s.read(a.out);
}

// So many choices of a row that what a block notes of 64 rows leaves no room for its weights.
TEST_P(Backends, MoeOfManyChoices) {
  constexpr ExpertShape kShape{40, 40, 128, 128, 128, 0, 40};
  check_moe(GetParam(), DType::f8_e4m3, kShape, {1}, 192);
  const Matrix x = random_matrix(74, 64, kShape.width, 3), all = moe_of_any(GetParam(), kShape, x);
  for (const int64_t row : {0, 63})
    expect_same_bits(pick(all, {row}), moe_of_any(GetParam(), kShape, pick(x, {row})), "a row of 64");
}

// Few rows, more and many have forms of their own, and shares or a counter.
TEST_P(Backends, MoeOfARowIsTheSameBesideAnyNumber) {
  constexpr ExpertShape kShape{10, 4, 384, 128, 2048, 2, 7};
  const Matrix x = random_matrix(75, 66, kShape.width, 3), all = moe_of_any(GetParam(), kShape, x);
  for (const int64_t rows : {1, 7, 64}) {
    Rows some;
    for (int64_t r = 66 - rows; r < 66; ++r) some.push_back(r);
    expect_same_bits(pick(all, some), moe_of_any(GetParam(), kShape, pick(x, some)),
                     fmt::format("{} rows of 66", rows));
  }
}

}  // namespace
}  // namespace godwit::ops_test
