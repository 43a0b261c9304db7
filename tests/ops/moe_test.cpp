#include <fmt/core.h>

#include "exact_fp8.h"
#include "harness.h"

namespace godwit::ops_test {
namespace {

struct Shape {
  int64_t experts, chosen, inner, width;
  int32_t first, held;  // the experts of this rank
};
constexpr Shape kShapes[] = {
    {10, 3, 48, 96, 0, 10}, {5, 2, 131, 40, 2, 3}, {32, 8, 128, 256, 8, 8}, {7, 7, 16, 24, 0, 7}};

Matrix route_ids_and_weights(Side& s, Shape shape, const Matrix& x, const Matrix& bias) {
  const View logits = s.output(x.rows, shape.experts);
  const View ids = s.output(x.rows, shape.chosen, DType::i32);
  const View weights = s.output(x.rows, shape.chosen);
  s.ops.route({s.input(x), s.weight(31, shape.experts, shape.width, DType::bf16), s.floats(bias.v), 2.5f,
               logits, ids, weights});
  return beside({s.read(ids), s.read(weights)});
}

TEST_P(Backends, RouteChoosesTheSameExperts) {
  for (const Shape shape : kShapes) {
    for (const int64_t rows : kRowCounts) {
      const Matrix x = random_matrix(32, rows, shape.width);
      const Matrix bias = random_matrix(33, 1, shape.experts, 0.3f);
      for (const bool want_ids : {true, false}) {
        check_row_op(
            GetParam(), rows,
            [&](Side& s, const Rows& r) {
              const Matrix both = route_ids_and_weights(s, shape, pick(x, r), bias);
              Matrix half(both.rows, shape.chosen);
              for (int64_t i = 0; i < both.rows; ++i) {
                for (int64_t c = 0; c < shape.chosen; ++c) {
                  half.at(i, c) = both.at(i, want_ids ? c : c + shape.chosen);
                }
              }
              return half;
            },
            want_ids ? kExact : kF32, fmt::format("{} of {}", shape.chosen, shape.experts));
      }
    }
  }
}

TEST_P(EveryBackend, RouteBreaksTiesToTheLowerId) {
  constexpr Shape kShape{10, 3, 16, 24, 0, 10};
  Side s(backend(GetParam()));
  Matrix bias(1, 10);
  bias.at(0, 4) = bias.at(0, 9) = 0.25f;  // all p are sigmoid(0); 4 and 9 first, then the tie 0, 1, 2, …
  const Matrix got = route_ids_and_weights(s, kShape, Matrix(2, 24), bias);
  for (int64_t t = 0; t < 2; ++t) {
    EXPECT_EQ(got.at(t, 0), 0);
    EXPECT_EQ(got.at(t, 1), 4);
    EXPECT_EQ(got.at(t, 2), 9);
    for (int64_t i = 3; i < 6; ++i) EXPECT_NEAR(got.at(t, i), 2.5 / 3, 1e-6);  // the bias is not in them
  }
  bias.at(0, 9) = 0;  // 4 first, then the cut goes through the tie of all others
  const Matrix cut = route_ids_and_weights(s, kShape, Matrix(1, 24), bias);
  EXPECT_EQ(cut.at(0, 0), 0);
  EXPECT_EQ(cut.at(0, 1), 1);
  EXPECT_EQ(cut.at(0, 2), 4);
}

// Gate and up: exact when FP8, see exact_fp8.h.
Weight first_weight(Side& s, uint64_t seed, int64_t out, int64_t in, DType dtype) {
  return dtype == DType::f8_e4m3 ? exact_weight(s, seed, out, in) : s.weight(seed, out, in, dtype);
}

// swiglu(gate x, up x), what an FP8 down projection quantises.
Matrix inner_of(Side& s, const Matrix& x, const Weight& gate, const Weight& up, float limit) {
  const View gate_up = s.output(x.rows, 2 * gate.out());
  const View in = s.input(x);
  s.ops.linear({in, gate, gate_up.col_range(0, gate.out())});
  s.ops.linear({in, up, gate_up.col_range(gate.out(), gate.out())});
  const View inner = s.output(x.rows, gate.out());
  s.ops.swiglu({gate_up, limit, inner});
  return s.read(inner);
}

constexpr float kLimit = 2;
constexpr int64_t kMostRows = 129;

// At least kMostRows rows for which no expert of this rank quantises anything near a tie.
Matrix expert_inputs(Shape shape, DType dtype, int64_t rows = kMostRows) {
  if (dtype != DType::f8_e4m3) return random_matrix(34, rows, shape.width, 3);
  const Matrix candidates = exact_rows(34, 3 * rows, shape.width);
  return without_near_ties(candidates, rows, shape.inner, [&](Side& s, const Matrix& x) {
    std::vector<Matrix> parts;
    for (int32_t e = shape.first; e < shape.first + shape.held; ++e) {
      const auto seed = static_cast<uint64_t>(40 + 10 * e);
      parts.push_back(inner_of(s, x, first_weight(s, seed, shape.inner, shape.width, dtype),
                               first_weight(s, seed + 2, shape.inner, shape.width, dtype), kLimit));
    }
    return beside(parts);
  });
}

const kernels::ExpertWeights* expert_table(Side& s, Shape shape, DType dtype) {
  std::vector<kernels::ExpertWeights> table;
  for (int32_t e = shape.first; e < shape.first + shape.held; ++e) {
    const auto seed = static_cast<uint64_t>(40 + 10 * e);
    table.push_back({first_weight(s, seed, shape.inner, shape.width, dtype),
                     first_weight(s, seed + 2, shape.inner, shape.width, dtype),
                     s.weight(seed + 4, shape.width, shape.inner, dtype)});
  }
  return s.upload(table);
}

// Ascending ids; row 0 and every fourth row choose the last experts, so that some get many rows, some none.
Matrix chosen_ids(int64_t rows, Shape shape) {
  Matrix ids(rows, shape.chosen);
  for (int64_t t = 0; t < rows; ++t) {
    const int64_t slack = shape.experts - shape.chosen;
    int64_t shift = t % 4 == 0 ? slack : (t * 7) % (slack + 1);
    for (int64_t i = 0; i < shape.chosen; ++i) ids.at(t, i) = static_cast<float>(i + shift);
  }
  return ids;
}

TEST_P(Backends, Experts) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f8_e4m3}) {
    for (const Shape shape : kShapes) {
      const Matrix x = expert_inputs(shape, dtype);
      for (const int64_t rows : kRowCounts) {
        const Matrix ids = chosen_ids(rows, shape);
        const Matrix weights = random_matrix(35, rows, shape.chosen, 0.1f, 0.8f);
        check_row_op(
            GetParam(), rows,
            [&](Side& s, const Rows& r) {
              const View out = s.output(static_cast<int64_t>(r.size()), shape.width, DType::f32, 1);
              kernels::Experts a;
              a.x = s.input(pick(x, r));
              a.ids = s.input(pick(ids, r), DType::i32);
              a.weights = s.input(pick(weights, r));
              a.experts = expert_table(s, shape, dtype);
              a.first_expert = shape.first;
              a.dtype = dtype;
              a.inner = shape.inner;
              a.expert_count = shape.held;
              a.limit = kLimit;
              a.out = out;
              s.ops.experts(a);
              return s.read(out);
            },
            kF32,
            fmt::format("{} {} experts {}x{}", name_of(dtype), shape.experts, shape.inner, shape.width));
      }
    }
  }
}

TEST_P(Backends, FfnAndMoe) {
  constexpr Shape kShape{10, 3, 48, 96, 0, 10};
  for (const DType dtype : {DType::bf16, DType::f8_e4m3}) {
    Matrix x = expert_inputs(kShape, dtype, 160);
    if (dtype == DType::f8_e4m3) {
      x = without_near_ties(x, kMostRows, 112, [&](Side& s, const Matrix& some) {
        return inner_of(s, some, first_weight(s, 37, 112, 96, dtype), first_weight(s, 51, 112, 96, dtype),
                        kLimit);
      });
    }
    for (const int64_t rows : kRowCounts) {
      check_row_op(
          GetParam(), rows,
          [&](Side& s, const Rows& r) {
            const auto n = static_cast<int64_t>(r.size());
            const View in = s.input(pick(x, r));
            kernels::Moe a;
            a.route = {in,
                       s.weight(31, 10, 96, DType::bf16),
                       s.floats(random_matrix(33, 1, 10, 0.3f).v),
                       2.5f,
                       s.output(n, 10),
                       s.output(n, 3, DType::i32),
                       s.output(n, 3)};
            a.experts = {in, a.route.ids, a.route.weights, expert_table(s, kShape, dtype), dtype, 48, 0,
                         10, kLimit,      s.output(n, 96)};
            a.shared = {in,
                        first_weight(s, 37, 112, 96, dtype),
                        first_weight(s, 51, 112, 96, dtype),
                        s.weight(39, 96, 112, dtype),
                        kLimit,
                        s.output(n, 224),
                        s.output(n, 112),
                        s.output(n, 96)};
            a.out = s.output(n, 96);
            s.ops.moe(a);
            return s.read(a.out);
          },
          kF32, fmt::format("moe {}", name_of(dtype)));
    }
  }
}

}  // namespace
}  // namespace godwit::ops_test
