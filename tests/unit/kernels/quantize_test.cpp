#include "kernels/quantize.h"

#include <gtest/gtest.h>

#include <vector>

namespace godwit::kernels {
namespace {

// The nearest e4m3 value by search, ties to the even code.
uint8_t nearest_code(float x) {
  int best = 0;
  for (int code = 0; code < 0x7f; ++code) {
    const double d = std::fabs(std::fabs(x) - to_float(f8_e4m3{static_cast<uint8_t>(code)}));
    const double least = std::fabs(std::fabs(x) - to_float(f8_e4m3{static_cast<uint8_t>(best)}));
    if (d < least || (d == least && code % 2 == 0)) best = code;
  }
  return static_cast<uint8_t>(best | (std::signbit(x) ? 0x80 : 0));
}

TEST(Quantize, CodesAreTheNearestOfTheDividedValue) {
  std::vector<float> x(128);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i) * 1.7f) * 3.1f;
  std::vector<f8_e4m3> codes(128);
  const float scale = quantize_group(x.data(), 128, codes.data());
  float largest = 0;
  for (const float v : x) largest = std::max(largest, std::fabs(v));
  EXPECT_EQ(scale, largest / 448.0f);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(codes[i].bits, nearest_code(x[i] / scale)) << x[i];
}

TEST(Quantize, GroupsAreAlignedAndTheLastIsRagged) {
  std::vector<float> x(300, 1.0f);
  x[128] = 448;
  x[299] = -2;
  std::vector<f8_e4m3> codes(300);
  std::vector<float> scales(3);
  quantize_row(x.data(), 300, codes.data(), scales.data());
  EXPECT_EQ(scales, (std::vector<float>{1 / 448.0f, 1.0f, 2 / 448.0f}));
  EXPECT_EQ(to_float(codes[0]), 448);
  EXPECT_EQ(to_float(codes[129]), 1);
  EXPECT_EQ(to_float(codes[299]), -448);
}

TEST(Quantize, ZeroAndUnderflowGiveZeroWithoutDividing) {
  for (const float tiny : {0.0f, 1e-44f}) {
    const std::vector<float> x = {tiny, 0, -tiny};
    std::vector<f8_e4m3> codes(3);
    EXPECT_EQ(quantize_group(x.data(), 3, codes.data()), 0.0f);
    for (const f8_e4m3 c : codes) EXPECT_EQ(c.bits, 0);
  }
}

TEST(Quantize, NanReachesTheProduct) {
  const std::vector<float> x = {1, NAN, 2};
  std::vector<f8_e4m3> codes(3);
  EXPECT_TRUE(std::isnan(quantize_group(x.data(), 3, codes.data())));
  EXPECT_TRUE(std::isnan(to_float(codes[0])));
}

}  // namespace
}  // namespace godwit::kernels
