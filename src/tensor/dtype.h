// Element types as they are named in safetensors, and the scalar conversions every backend must agree on.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace godwit {

enum class DType : uint8_t { f32, bf16, f8_e4m3, i32, i64, u8 };

constexpr int64_t size_of(DType t) {
  switch (t) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
      return 2;
    case DType::i64:
      return 8;
    default:
      return 1;
  }
}

constexpr std::string_view name_of(DType t) {
  constexpr std::string_view kNames[] = {"F32", "BF16", "F8_E4M3", "I32", "I64", "U8"};
  return kNames[static_cast<int>(t)];
}

struct bf16 {
  uint16_t bits;
};
struct f8_e4m3 {
  uint8_t bits;  // OCP e4m3fn: no infinities, 0x7f and 0xff are NaN, largest 448
};

inline float to_float(bf16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

// Round to nearest even; NaN stays NaN.
inline bf16 to_bf16(float x) {
  uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

inline float to_float(f8_e4m3 x) {
  uint32_t sign = static_cast<uint32_t>(x.bits & 0x80u) << 24;
  uint32_t exponent = (x.bits >> 3) & 15u;
  uint32_t mantissa = x.bits & 7u;
  if (exponent == 15u && mantissa == 7u) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exponent == 0u) {  // subnormal: mantissa * 2^-9
    float v = static_cast<float>(mantissa) * 0.001953125f;
    return sign ? -v : v;
  }
  return std::bit_cast<float>(sign | ((exponent + 120u) << 23) | (mantissa << 20));
}

// Round to nearest even, saturating at +-448; NaN stays NaN.
inline f8_e4m3 to_e4m3(float x) {
  uint8_t sign = std::signbit(x) ? 0x80u : 0u;
  float a = std::fabs(x);
  if (std::isnan(a)) return {static_cast<uint8_t>(sign | 0x7fu)};
  if (a >= 448.0f) return {static_cast<uint8_t>(sign | 0x7eu)};
  if (a < 0.015625f) {  // below the smallest normal 2^-6: steps of 2^-9; 8 carries into the first normal
    return {static_cast<uint8_t>(sign | static_cast<uint8_t>(std::nearbyint(a * 512.0f)))};
  }
  uint32_t u = std::bit_cast<uint32_t>(a);
  u += 0x7ffffu + ((u >> 20) & 1u);
  return {static_cast<uint8_t>(sign | ((u >> 20) - (120u << 3)))};
}

}  // namespace godwit
