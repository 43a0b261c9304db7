#include "exact_fp8.h"

#include <algorithm>
#include <cmath>

namespace godwit::ops_test {
namespace {

constexpr float kCode = 1.0f / 16;

// Ten times what a norm or a SwiGLU of exact inputs and the division by the scale may differ by in f32.
constexpr double kMargin = 4e-6;

// Relative distance of |x| / scale from the nearest point where its e4m3 code changes.
double distance_to_tie(double value) {
  const double step = value < 0.015625 ? 0.001953125 : std::ldexp(1.0, std::ilogb(value) - 3);
  const double place = value / step;
  return std::fabs(place - (std::floor(place) + 0.5)) * step / value;
}

bool is_clear(const Matrix& m, int64_t row, int64_t group_width) {
  for (int64_t first = 0; first < m.cols; first += group_width) {
    for (int64_t c = 0; c < group_width; c += kFp8Block) {
      const int64_t n = std::min(kFp8Block, group_width - c);
      double largest = 0;
      for (int64_t i = 0; i < n; ++i)
        largest = std::max(largest, std::fabs(static_cast<double>(m.at(row, first + c + i))));
      for (int64_t i = 0; i < n; ++i) {
        const double value = std::fabs(static_cast<double>(m.at(row, first + c + i))) / largest * 448;
        if (value > 0 && distance_to_tie(value) < kMargin) return false;
      }
    }
  }
  return true;
}

}  // namespace

Matrix exact_rows(uint64_t seed, int64_t rows, int64_t cols) {
  Matrix m(rows, cols);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const float x = noise(seed, static_cast<uint64_t>(r), static_cast<uint64_t>(c));
      m.at(r, c) = kCode * std::round(std::clamp(8 * x, -15.0f, 15.0f));
      const int64_t in_group = c % kFp8Block;
      if (in_group == (r * 5) % std::min(kFp8Block, cols - (c - in_group)))
        m.at(r, c) = x < 0 ? -448 * kCode : 448 * kCode;
    }
  }
  return m;
}

Weight exact_weight(Side& s, uint64_t seed, int64_t out, int64_t in) {
  Matrix codes(out, in);
  for (size_t i = 0; i < codes.v.size(); ++i)
    codes.v[i] = std::round(std::clamp(4 * noise(seed, i), -15.0f, 15.0f));
  const int64_t blocks_in = (in + kFp8Block - 1) / kFp8Block;
  std::vector<float> scales;
  for (int64_t i = 0; i < (out + kFp8Block - 1) / kFp8Block * blocks_in; ++i)
    scales.push_back(noise(seed + 1, static_cast<uint64_t>(i)) < 0 ? 1.0f / 64 : 1.0f / 32);
  return {s.input(codes, DType::f8_e4m3), s.floats(scales), blocks_in};
}

Matrix without_near_ties(const Matrix& candidates, int64_t rows, int64_t group_width,
                         const Requantised& requantised) {
  Side reference(oracle());
  const Matrix values = requantised(reference, candidates);
  Rows clear;
  for (int64_t r = 0; r < values.rows && static_cast<int64_t>(clear.size()) < rows; ++r) {
    if (is_clear(values, r, group_width)) clear.push_back(r);
  }
  EXPECT_EQ(static_cast<int64_t>(clear.size()), rows) << "of " << candidates.rows << " candidates";
  return pick(candidates, clear);
}

}  // namespace godwit::ops_test
