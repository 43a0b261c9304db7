#include <fmt/core.h>

#include <limits>

#include "harness.h"
#include "step_builder.h"

namespace godwit::ops_test {
namespace {

constexpr int64_t kWidths[] = {1, 16, 24, 40, 48, 96, 127, 128, 256, 1000};

TEST_P(Backends, RmsNorm) {
  for (const int64_t width : kWidths) {
    for (const int64_t rows : kRowCounts) {
      const Matrix x = random_matrix(1, rows, width, 3);
      const Matrix weight = random_matrix(2, 1, width, 0.5f, 1);
      check_row_op(
          GetParam(), rows,
          [&](Side& s, const Rows& r) {
            const View out = s.output(static_cast<int64_t>(r.size()), width, DType::f32, 3);
            s.ops.rms_norm({s.input(pick(x, r), DType::f32, 5), s.floats(weight.v), 1e-5f, out});
            return s.read(out);
          },
          kF32, fmt::format("width {}", width));
    }
  }
}

TEST_P(Backends, RmsNormInPlaceGivesTheSameBits) {
  Side s(backend(GetParam()));
  const Matrix x = random_matrix(1, 5, 96, 3);
  const float* weight = s.floats(random_matrix(2, 1, 96, 0.5f, 1).v);
  const View in = s.input(x);
  const View out = s.output(5, 96);
  s.ops.rms_norm({in, weight, 1e-5f, out});
  s.ops.rms_norm({in, weight, 1e-5f, in});
  expect_same_bits(s.read(in), s.read(out), "in place");
}

TEST_P(Backends, LayerNorm) {
  for (const int64_t width : {2, 16, 24, 40, 128, 131}) {
    for (const int64_t rows : kRowCounts) {
      const Matrix x = random_matrix(3, rows, width, 2, 5);  // a mean far from zero
      check_row_op(
          GetParam(), rows,
          [&](Side& s, const Rows& r) {
            const View out = s.output(static_cast<int64_t>(r.size()), width);
            s.ops.layer_norm({s.input(pick(x, r)), s.floats(random_matrix(4, 1, width, 0.5f, 1).v),
                              s.floats(random_matrix(5, 1, width).v), 1e-6f, out});
            return s.read(out);
          },
          {1e-5, 2e-5}, fmt::format("width {}", width));
    }
  }
}

TEST_P(Backends, Linear) {
  constexpr int64_t kShapes[][2] = {{1, 1},    {15, 17},   {49, 131},  {96, 96},   {40, 72},
                                    {147, 48}, {130, 256}, {257, 384}, {64, 1000}, {32, 4096}};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f8_e4m3}) {
    for (const auto& [out_width, in_width] : kShapes) {
      for (const int64_t rows : kRowCounts) {
        const Matrix x = random_matrix(6, rows, in_width);
        check_row_op(
            GetParam(), rows,
            [&](Side& s, const Rows& r) {
              const View out = s.output(static_cast<int64_t>(r.size()), out_width, DType::f32, 7);
              s.ops.linear(
                  {s.input(pick(x, r), DType::f32, 3), s.weight(7, out_width, in_width, dtype), out});
              return s.read(out);
            },
            kF32, fmt::format("{} {}x{}", name_of(dtype), out_width, in_width));
      }
    }
  }
}

TEST_P(Backends, Fp8LinearOfZerosTinyAndHugeRows) {
  constexpr int64_t kIn = 300, kOut = 140;
  Matrix x = random_matrix(8, 6, kIn);
  for (int64_t c = 0; c < kIn; ++c) {
    x.at(0, c) = 0;
    x.at(1, c) *= 1e-30f;
    x.at(2, c) *= 1e30f;
    if (c >= 128 && c < 256) x.at(3, c) = 0;           // one group of zeros
    x.at(4, c) = c == 17 ? 1e4f : 1e-3f * x.at(4, c);  // one outlier
    x.at(5, c) *= 1e-44f;                              // the scale underflows to zero
  }
  check_row_op(
      GetParam(), 6,
      [&](Side& s, const Rows& r) {
        const View out = s.output(static_cast<int64_t>(r.size()), kOut);
        s.ops.linear({s.input(pick(x, r)), s.weight(9, kOut, kIn, DType::f8_e4m3), out});
        Matrix y = s.read(out);
        for (size_t i = 0; i < r.size(); ++i) {  // to one magnitude, so that every row is compared
          const float unit = r[i] == 1 ? 1e30f : r[i] == 2 ? 1e-30f : r[i] == 4 ? 1e-4f : 1.0f;
          for (int64_t c = 0; c < kOut; ++c) y.at(static_cast<int64_t>(i), c) *= unit;
        }
        return y;
      },
      kF32, "edge rows");
}

TEST_P(Backends, NanStaysInItsRow) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f8_e4m3}) {
    Side s(backend(GetParam()));
    Matrix x = random_matrix(10, 3, 256);
    const Weight w = s.weight(11, 20, 256, dtype);
    const View clean = s.output(3, 20);
    s.ops.linear({s.input(x), w, clean});
    x.at(1, 200) = std::numeric_limits<float>::quiet_NaN();
    const View out = s.output(3, 20);
    s.ops.linear({s.input(x), w, out});
    const Matrix got = s.read(out);
    for (int64_t c = 0; c < 20; ++c) EXPECT_TRUE(std::isnan(got.at(1, c))) << name_of(dtype);
    expect_same_bits(pick(got, {0, 2}), pick(s.read(clean), {0, 2}), "rows beside a NaN row");
  }
}

// Every code, NaN included, is what the definition says, in whole vectors and in a ragged end, widened in
// registers and by the panel.
TEST_P(Backends, EveryE4m3CodeOfAWeight) {
  Side s(backend(GetParam()));
  for (const int64_t rows : {1, 2, 5, 13}) {
    for (const int64_t at : {0, 64, 65}) {  // column 65 is the last, alone behind the vectors
      constexpr int64_t kIn = 66;
      std::vector<uint8_t> codes(256 * kIn, 0);
      for (int64_t n = 0; n < 256; ++n) codes[static_cast<size_t>(n * kIn + at)] = static_cast<uint8_t>(n);
      const View data = make_view(s.upload(codes), DType::f8_e4m3, 256, kIn);
      Matrix x(rows, kIn);
      for (int64_t r = 0; r < rows; ++r) x.at(r, at) = 448;  // scale 1
      const View out = s.output(rows, 256);
      s.ops.linear({s.input(x), Weight{data, s.floats({0.5f, 0.5f}), 1}, out});
      const Matrix got = s.read(out);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t n = 0; n < 256; ++n) {
          const float code = to_float(f8_e4m3{static_cast<uint8_t>(n)});
          if (std::isnan(code)) {
            EXPECT_TRUE(std::isnan(got.at(r, n))) << "code " << n;
          } else {
            EXPECT_EQ(got.at(r, n), 224 * code) << "code " << n << " in column " << at;
          }
        }
      }
    }
  }
}

TEST_P(Backends, LmHead) {
  for (const DType dtype : {DType::bf16, DType::f8_e4m3}) {
    for (const int64_t rows : {1, 3, 65}) {
      const Matrix x = random_matrix(12, rows, 96);
      check_row_op(
          GetParam(), rows,
          [&](Side& s, const Rows& r) {
            const View out = s.output(static_cast<int64_t>(r.size()), 353);
            s.ops.lm_head({s.input(pick(x, r)), s.weight(13, 353, 96, dtype), out});
            return s.read(out);
          },
          kF32, "lm_head");
    }
  }
}

TEST_P(Backends, HeadLinear) {
  struct Shape {
    int64_t heads, in, out;
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Shape shape : {Shape{3, 48, 72}, Shape{3, 72, 40}, Shape{1, 16, 24}, Shape{5, 131, 33}}) {
      for (const int64_t rows : kRowCounts) {
        const Matrix x = random_matrix(14, rows, shape.heads * shape.in);
        check_row_op(
            GetParam(), rows,
            [&](Side& s, const Rows& r) {
              const View out = s.output(static_cast<int64_t>(r.size()), shape.heads * shape.out);
              s.ops.head_linear({s.input(pick(x, r)),
                                 s.weight(15, shape.heads * shape.out, shape.in, dtype).data, shape.heads,
                                 out});
              return s.read(out);
            },
            kF32, fmt::format("{} heads {}x{}", shape.heads, shape.out, shape.in));
      }
    }
  }
}

TEST_P(Backends, SwiGlu) {
  for (const int64_t inner : {1, 7, 48, 112, 256, 1000}) {
    for (const int64_t rows : kRowCounts) {
      Matrix x = random_matrix(16, rows, 2 * inner, 8);
      if (rows > 0) x.at(0, 0) = -1e4f;  // silu must give -0, not NaN
      check_row_op(
          GetParam(), rows,
          [&](Side& s, const Rows& r) {
            const View out = s.output(static_cast<int64_t>(r.size()), inner, DType::f32, 1);
            s.ops.swiglu({s.input(pick(x, r), DType::f32, 2), 10, out});
            return s.read(out);
          },
          kF32, fmt::format("inner {}", inner));
    }
  }
}

TEST_P(Backends, AddAndGatherRows) {
  for (const int64_t rows : kRowCounts) {
    const Matrix x = random_matrix(17, rows, 97);
    const Matrix y = random_matrix(18, rows, 97);
    check_row_op(
        GetParam(), rows,
        [&](Side& s, const Rows& r) {
          const auto n = static_cast<int64_t>(r.size());
          const View sum = s.output(n, 97, DType::f32, 1);
          s.ops.add({s.input(pick(x, r)), s.input(pick(y, r)), sum});
          const View gathered = s.output(n, 97, DType::f32, 2);
          s.ops.gather_rows({s.input(x), s.ints(std::vector<int32_t>(r.begin(), r.end())), gathered});
          return beside({s.read(sum), s.read(gathered)});
        },
        kExact, "width 97");
  }
}

TEST_P(Backends, EmbedTakesIdsOfThisShardAndOfSlots) {
  constexpr int64_t kWidth = 40, kFirst = 100, kCount = 50;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto run = [&](Side& s) {
      const std::vector<int32_t> ids = {100, 149, 99, 150, kernels::kFromSlot, 0, 120};
      Step step(s,
                {{.kind = kernels::RowKind::decode, .first = 9, .rows = 4, .slot = 1},
                 {.kind = kernels::RowKind::decode, .first = 5, .rows = 1, .slot = 3},
                 {.kind = kernels::RowKind::prefill, .first = 0, .rows = 2, .slot = 2}},
                ids);
      const View out = s.output(7, kWidth, DType::f32, 3);
      s.ops.embed(step.view, {s.weight(19, kCount, kWidth, dtype), kFirst, s.ints({-7, -7, -7, 101}), out});
      return s.read(out);
    };
    Side tested(backend(GetParam()));
    Side reference(oracle());
    const Matrix got = run(tested);
    expect_same_bits(got, run(reference), "embed");
    for (const int64_t absent : {2, 3, 5}) EXPECT_EQ(got.at(absent, 0), 0.0f);
    EXPECT_NE(got.at(4, 0), 0.0f);
  }
}

}  // namespace
}  // namespace godwit::ops_test
