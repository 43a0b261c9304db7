#include <fmt/core.h>

#include "harness.h"

namespace godwit::ops_test {
namespace {

struct Shape {
  int64_t streams, width;
};
constexpr Shape kShapes[] = {{4, 96}, {4, 256}, {4, 1}, {4, 131}, {2, 40}, {4, 1000}};

kernels::MhcWeights mhc_weights(Side& s, Shape shape, DType dtype, float sharpness) {
  const int64_t m = 2 * shape.streams + shape.streams * shape.streams;
  return {s.weight(21, m, shape.streams * shape.width, dtype).data,
          s.floats(random_matrix(22, 1, m, sharpness).v), s.floats({0.5f, 1.0f, 1.5f})};
}

Matrix streams_of(int64_t rows, Shape shape) {
  Matrix x = random_matrix(23, rows, shape.streams * shape.width);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < x.cols; ++c) {
      if (r % 4 == 1) x.at(r, c) = x.at(r, c % shape.width);  // equal streams
      if (r % 4 == 2 && c < shape.width) x.at(r, c) *= 4096;  // one stream above the others
      if (r % 4 == 3) x.at(r, c) = 0;                         // RMS of nothing
    }
  }
  return x;
}

TEST_P(Backends, MhcCollapse) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Shape shape : kShapes) {
      for (const float sharpness : {1.0f, 40.0f}) {  // 40: the softmax is nearly one-hot
        for (const int64_t rows : kRowCounts) {
          const Matrix streams = streams_of(rows, shape);
          const int64_t n = shape.streams;
          for (const bool want_mix : {true, false}) {
            check_row_op(
                GetParam(), rows,
                [&](Side& s, const Rows& r) {
                  const auto count = static_cast<int64_t>(r.size());
                  const View mix = s.output(count, n + n * n);
                  const View x = s.output(count, shape.width);
                  s.ops.mhc_collapse({s.input(pick(streams, r)), mhc_weights(s, shape, dtype, sharpness),
                                      1e-5f, 1e-6f, 20, mix, x});
                  return s.read(want_mix ? mix : x);
                },
                {1e-5, 2e-5}, fmt::format("{} streams of {} {}", n, shape.width, want_mix ? "mix" : "x"));
          }
        }
      }
    }
  }
}

TEST_P(Backends, MhcBroadcastExpandAndMean) {
  for (const Shape shape : kShapes) {
    for (const int64_t rows : kRowCounts) {
      const int64_t n = shape.streams;
      const Matrix streams = random_matrix(24, rows, n * shape.width);
      const Matrix mix = random_matrix(25, rows, n + n * n);
      const Matrix y = random_matrix(26, rows, shape.width);
      check_row_op(
          GetParam(), rows,
          [&](Side& s, const Rows& r) {
            const auto count = static_cast<int64_t>(r.size());
            const View in_out = s.input(pick(streams, r));
            s.ops.mhc_expand({s.input(pick(mix, r)), s.input(pick(y, r)), in_out});
            const View mean = s.output(count, shape.width);
            s.ops.mhc_mean({in_out, mean});
            const View copies = s.output(count, n * shape.width);
            s.ops.mhc_broadcast({s.input(pick(y, r)), copies});
            return beside({s.read(in_out), s.read(mean), s.read(copies)});
          },
          kF32, fmt::format("{} streams of {}", n, shape.width));
    }
  }
}

TEST_P(Backends, MhcBoundary) {
  for (const Shape shape : kShapes) {
    for (const int64_t rows : kRowCounts) {
      const int64_t n = shape.streams;
      const Matrix streams = random_matrix(27, rows, n * shape.width);
      const Matrix mix_in = random_matrix(28, rows, n + n * n);
      const Matrix y = random_matrix(29, rows, shape.width);
      for (const bool first_site : {false, true}) {
        if (first_site && shape.width < 256) continue;
        check_row_op(
            GetParam(), rows,
            [&](Side& s, const Rows& r) {
              const auto count = static_cast<int64_t>(r.size());
              const View residual = s.input(pick(streams, r));
              const View mix = s.input(pick(mix_in, r));
              const View x = s.output(count, shape.width);
              const View normed = s.output(count, shape.width);
              kernels::MhcBoundary a;
              if (!first_site) a.expand = {mix, s.input(pick(y, r)), residual};
              a.collapse = {residual, mhc_weights(s, shape, DType::bf16, 1), 1e-5f, 1e-6f, 20, mix, x};
              a.norm_weight = s.floats(random_matrix(30, 1, shape.width, 0.5f, 1).v);
              a.normed = normed;
              s.ops.mhc_boundary(a);
              return beside({s.read(residual), s.read(mix), s.read(normed)});
            },
            {1e-5, 2e-5},
            fmt::format("{} streams of {}{}", n, shape.width, first_site ? ", first site" : ""));
      }
    }
  }
}

// What an FP8 product makes of a row does not depend on who quantised it; codes of rows that have changed are
// not used.
TEST_P(EveryBackend, MhcBoundaryInFrontOfAnFp8Product) {
#ifdef GODWIT_CUDA_EMULATED
  constexpr Shape kShape{4, 256};
#else
  constexpr Shape kShape{4, 2304};
#endif
  constexpr int64_t kRows = 9, kOut = 40;
  Side s(backend(GetParam()));
  const View residual = s.input(random_matrix(31, kRows, kShape.streams * kShape.width));
  const View mix = s.input(random_matrix(32, kRows, 20));
  const View normed = s.output(kRows, kShape.width);
  kernels::MhcBoundary a;
  a.expand = {mix, s.input(random_matrix(33, kRows, kShape.width)), residual};
  a.collapse = {residual, mhc_weights(s, kShape, DType::bf16, 1), 1e-5f, 1e-6f, 20,
                mix,      s.output(kRows, kShape.width)};
  a.norm_weight = s.floats(random_matrix(34, 1, kShape.width, 0.5f, 1).v);
  a.normed = normed;
  a.feeds_fp8 = true;
  const Weight w = s.weight(35, kOut, kShape.width, DType::f8_e4m3);
  const auto product_of = [&](const Matrix& x) {
    const View out = s.output(kRows, kOut);
    s.ops.linear({s.input(x), w, out});
    return s.read(out);
  };
  // Everything is in its place before the boundary: nothing is written between it and the product.
  const View out = s.output(kRows, kOut);
  s.ops.mhc_boundary(a);
  s.ops.linear({normed, w, out});
  expect_same_bits(s.read(out), product_of(s.read(normed)), "codes made by the boundary");
  const View other = s.input(random_matrix(36, kRows, kShape.width)), next = s.output(kRows, kOut);
  s.ops.mhc_boundary(a);
  s.ops.rms_norm({other, a.norm_weight, 1e-5f, normed});
  s.ops.linear({normed, w, next});
  expect_same_bits(s.read(next), product_of(s.read(normed)), "rows written by an op");
  const Matrix x = random_matrix(37, kRows, kShape.width);
  const View last = s.output(kRows, kOut);
  s.ops.mhc_boundary(a);
  s.ops.memory().upload(normed.data, x.v.data(), kRows * kShape.width * 4);
  s.ops.linear({normed, w, last});
  expect_same_bits(s.read(last), product_of(x), "rows written from outside");
}

// More rows of decode than take part at once, with the codes of all of them.
TEST_P(EveryBackend, MhcBoundaryOfManyDecodeRows) {
  constexpr Shape kShape{4, 128};
  constexpr int64_t kRows = 265, kOut = 8;
  Side s(backend(GetParam()));
  const Matrix streams = random_matrix(41, kRows, kShape.streams * kShape.width);
  const Matrix mix = random_matrix(42, kRows, 20), y = random_matrix(43, kRows, kShape.width);
  const auto boundary = [&](const Rows& r, bool feeds_fp8) {
    const auto count = static_cast<int64_t>(r.size());
    kernels::MhcBoundary a;
    const View residual = s.input(pick(streams, r)), own = s.input(pick(mix, r));
    a.expand = {own, s.input(pick(y, r)), residual};
    a.collapse = {residual, mhc_weights(s, kShape, DType::bf16, 1), 1e-5f, 1e-6f, 20,
                  own,      s.output(count, kShape.width)};
    a.norm_weight = s.floats(random_matrix(44, 1, kShape.width, 0.5f, 1).v);
    a.normed = s.output(count, kShape.width);
    a.feeds_fp8 = feeds_fp8;
    return a;
  };
  const kernels::MhcBoundary all = boundary(all_rows(kRows), true);
  const Weight w = s.weight(45, kOut, kShape.width, DType::f8_e4m3);
  const View out = s.output(kRows, kOut), again = s.output(kRows, kOut);
  s.ops.mhc_boundary(all);
  s.ops.linear({all.normed, w, out});
  s.ops.linear({s.input(s.read(all.normed)), w, again});
  expect_same_bits(s.read(out), s.read(again), "codes made by the boundary");
  const Rows some{0, 255, 256, 264};
  const kernels::MhcBoundary few = boundary(some, false);
  s.ops.mhc_boundary(few);
  expect_same_bits(s.read(few.normed), pick(s.read(all.normed), some), "alone = together");
}

}  // namespace
}  // namespace godwit::ops_test
