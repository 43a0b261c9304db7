#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <limits>

namespace godwit {
namespace {

// The value of an e4m3fn code by its definition, computed in double.
double e4m3_value(int code) {
  int exponent = (code >> 3) & 15;
  int mantissa = code & 7;
  double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(1.0 + mantissa / 8.0, exponent - 7);
  return code & 0x80 ? -magnitude : magnitude;
}

bool is_nan_code(int code) {
  return (code & 0x7f) == 0x7f;
}

TEST(E4m3, AllCodesDecodeAndEncodeBack) {
  for (int code = 0; code < 256; ++code) {
    float value = to_float(f8_e4m3{static_cast<uint8_t>(code)});
    if (is_nan_code(code)) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_EQ(static_cast<double>(value), e4m3_value(code)) << code;
      EXPECT_EQ(std::signbit(value), code >= 128) << code;
    }
    EXPECT_EQ(to_e4m3(value).bits, code) << code;
  }
}

TEST(E4m3, RoundsToNearestEvenBetweenAllNeighbours) {
  for (int code = 0; code < 0x7e; ++code) {
    double low = e4m3_value(code);
    double high = e4m3_value(code + 1);
    float middle = static_cast<float>((low + high) / 2);  // exact: one more mantissa bit
    int even = code % 2 == 0 ? code : code + 1;
    EXPECT_EQ(to_e4m3(middle).bits, even) << code;
    EXPECT_EQ(to_e4m3(std::nextafter(middle, 0.0f)).bits, code) << code;
    EXPECT_EQ(to_e4m3(std::nextafter(middle, 1000.0f)).bits, code + 1) << code;
    EXPECT_EQ(to_e4m3(-middle).bits, even | 0x80) << code;
  }
}

TEST(E4m3, Saturates) {
  EXPECT_EQ(to_e4m3(448.0f).bits, 0x7e);
  EXPECT_EQ(to_e4m3(1e30f).bits, 0x7e);
  EXPECT_EQ(to_e4m3(-std::numeric_limits<float>::infinity()).bits, 0xfe);
  EXPECT_EQ(to_e4m3(std::numeric_limits<float>::quiet_NaN()).bits & 0x7f, 0x7f);
}

TEST(Bf16, RoundsToNearestEven) {
  auto from_bits = [](uint32_t u) { return std::bit_cast<float>(u); };
  EXPECT_EQ(to_bf16(from_bits(0x3f808000)).bits, 0x3f80);  // tie, even below
  EXPECT_EQ(to_bf16(from_bits(0x3f818000)).bits, 0x3f82);  // tie, even above
  EXPECT_EQ(to_bf16(from_bits(0x3f808001)).bits, 0x3f81);
  EXPECT_EQ(to_bf16(from_bits(0x3f807fff)).bits, 0x3f80);
  EXPECT_EQ(to_bf16(from_bits(0xbf818000)).bits, 0xbf82);
  EXPECT_EQ(to_bf16(from_bits(0x7f7fffff)).bits, 0x7f80);  // rounds up to infinity
  EXPECT_EQ(to_bf16(from_bits(0x00008001)).bits, 0x0001);  // subnormal
}

TEST(Bf16, EveryCodeSurvivesTheRoundTrip) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    float value = to_float(bf16{static_cast<uint16_t>(code)});
    uint16_t back = to_bf16(value).bits;
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(to_float(bf16{back}))) << code;
    } else {
      EXPECT_EQ(back, code);
    }
  }
}

}  // namespace
}  // namespace godwit
