#include "kernels/cache_format.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/cpu/cpu_ops.h"

namespace godwit::kernels {
namespace {

constexpr DType kCodes = DType::f8_e4m3;

std::vector<float> normal(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> value;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = value(random);
  return x;
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

// A row of codes in memory of its own.
class Row {
 public:
  explicit Row(int64_t n) : n_(n), memory_(static_cast<size_t>(row_bytes(kCodes, n)), std::byte{0xff}) {}
  StoredRow at() { return latent_at(memory_.data(), kCodes, 0, n_); }
  float scale(int64_t group = 0) { return at().scales[group]; }
  uint8_t code(int64_t i) { return codes_of(at())[i].bits; }
  std::vector<float> values() {
    std::vector<float> x(static_cast<size_t>(n_));
    load_row(at(), kCodes, x.data(), n_);
    return x;
  }

 private:
  int64_t n_;
  std::vector<std::byte> memory_;
};

TEST(CacheFormat, TheRealModelTakes528BytesALatentAnd132AKey) {
  EXPECT_EQ(row_bytes(kCodes, 512), 528);
  EXPECT_EQ(row_bytes(kCodes, 128), 132);
  EXPECT_EQ(row_bytes(DType::bf16, 512), 1024);
  EXPECT_EQ(row_bytes(DType::f32, 128), 512);
  EXPECT_EQ(row_bytes(kCodes, 131), 132 + 8) << "scales lie on whole floats";
  std::array<std::byte, 64 * 528> page;
  EXPECT_EQ(latent_at(page.data(), kCodes, 3, 512).values - page.data(), 3 * 528);
  EXPECT_EQ(reinterpret_cast<std::byte*>(latent_at(page.data(), kCodes, 3, 512).scales) - page.data(),
            3 * 528 + 512);
  // All codes of a page's keys, then all scales.
  EXPECT_EQ(key_at(page.data(), kCodes, 16, 3, 128).values - page.data(), 3 * 128);
  EXPECT_EQ(reinterpret_cast<std::byte*>(key_at(page.data(), kCodes, 16, 3, 128).scales) - page.data(),
            16 * 128 + 3 * 4);
}

TEST(CacheFormat, NamesAreThoseOfTheFlag) {
  for (const DType format : {DType::f32, DType::bf16, kCodes})
    EXPECT_EQ(cache_format_of(cache_format_name(format)), format);
  EXPECT_EQ(cache_format_name(kCodes), "fp8");
  EXPECT_EQ(cache_format_of("auto"), std::nullopt);
}

TEST(CacheFormat, ABackendWithoutAFormatSaysWhatItHas) {
  class WithoutFp8 final : public cpu::CpuOps {
   public:
    WithoutFp8() : CpuOps(1) {}
    std::string_view name() const override { return "small"; }
    bool holds(DType format) const override { return format != kCodes; }
  } ops;
  EXPECT_TRUE(check_cache_format(ops, DType::bf16).ok());
  const auto refused = check_cache_format(ops, kCodes);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::usage);
  EXPECT_EQ(refused.error().field, "--kv");
  EXPECT_EQ(refused.error().message,
            "the small backend has no kernels for fp8 caches, only for f32 and bf16");
}

TEST(CacheFormat, HadamardOfFourAndOfUnits) {
  std::vector<float> x = {1, 2, 3, -4};
  hadamard(x.data(), 4);
  EXPECT_EQ(x, (std::vector<float>{1, 3, 2, -4})) << "half of {2, 6, 4, -8}";
  // Channel j of a transformed unit i is (-1)^popcount(i & j) / sqrt(n).
  for (const int64_t i : {0, 1, 77, 127}) {
    std::vector<float> unit(128);
    unit[static_cast<size_t>(i)] = 1;
    hadamard(unit.data(), 128);
    for (int64_t j = 0; j < 128; ++j) {
      const float sign = std::popcount(static_cast<uint64_t>(i & j)) % 2 ? -1.0f : 1.0f;
      ASSERT_EQ(unit[static_cast<size_t>(j)], sign * (1 / std::sqrt(128.0f))) << i << " " << j;
    }
  }
}

TEST(CacheFormat, HadamardIsOrthonormalAtEveryWidth) {
  for (const int64_t n : {1, 2, 3, 16, 21, 40, 64, 72, 127, 128}) {
    const std::vector<float> a = normal(n, 1), b = normal(n, 2);
    std::vector<float> turned_a = a, turned_b = b;
    hadamard(turned_a.data(), n);
    hadamard(turned_b.data(), n);
    const double size = std::sqrt(dot(a, a) * dot(b, b));
    EXPECT_NEAR(dot(turned_a, turned_b), dot(a, b), 1e-6 * size) << n;
    EXPECT_NEAR(dot(turned_a, turned_a), dot(a, a), 1e-6 * dot(a, a)) << n;
    hadamard(turned_a.data(), n);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(turned_a[i], a[i], 2e-6) << n << " " << i;
  }
}

TEST(CacheFormat, LatentKnownAnswer) {
  std::vector<float> x(130, 0.0f);
  x[0] = 448;
  x[1] = 17;      // between 16 and 18: to even
  x[2] = -19;     // between 18 and 20: to even
  x[3] = 0.001f;  // 0.512 steps of 2^-9: one
  x[128] = 44.8f;
  x[129] = -1.7f;
  Row row(130);
  store_latent(row.at(), kCodes, x.data(), 130);
  EXPECT_EQ(row.scale(0), 1.0f);
  EXPECT_EQ(row.scale(1), 44.8f / 448);
  EXPECT_EQ(row.code(0), 0x7e);
  const std::vector<float> got = row.values();
  EXPECT_EQ(got[0], 448);
  EXPECT_EQ(got[1], 16);
  EXPECT_EQ(got[2], -20);
  EXPECT_EQ(got[3], 1.0f / 512);
  EXPECT_EQ(got[4], 0);
  EXPECT_FLOAT_EQ(got[128], 44.8f);
  EXPECT_FLOAT_EQ(got[129], -1.6f);
}

// Half a step of three bits of mantissa, or half a step of the smallest codes.
TEST(CacheFormat, AValueIsOffByAtMostOneSixteenth) {
  for (const bool key : {false, true}) {
    for (const int64_t n : {16, 40, 128, 300}) {
      std::vector<float> x = normal(n, 3);
      Row row(n);
      (key ? store_key : store_latent)(row.at(), kCodes, x.data(), n);
      if (key)
        for (int64_t first = 0; first < n; first += kFp8Block)
          hadamard(x.data() + first, std::min(n - first, kFp8Block));
      const std::vector<float> got = row.values();
      for (int64_t i = 0; i < n; ++i) {
        const float v = x[static_cast<size_t>(i)], scale = row.scale(i / kFp8Block);
        EXPECT_LE(std::fabs(got[static_cast<size_t>(i)] - v),
                  std::max(std::fabs(v) / 16 * 1.00001f, scale / 1024 * 1.00001f))
            << i << " of " << n;
      }
    }
  }
}

TEST(CacheFormat, KeyScalesArePowersOfTwoThatNoCodeExceeds) {
  for (const float magnitude : {1e-30f, 1e-5f, 0.3f, 1.0f, 448.0f, 449.0f, 1e20f}) {
    std::vector<float> x = normal(128, 4);
    for (float& v : x) v *= magnitude;
    Row row(128);
    store_key(row.at(), kCodes, x.data(), 128);
    int exponent = 0;
    EXPECT_EQ(std::frexp(row.scale(), &exponent), 0.5f) << magnitude;
    hadamard(x.data(), 128);
    const float largest = std::max(largest_magnitude(x.data(), 128), 1e-4f);
    EXPECT_GE(row.scale() * 448, largest);
    EXPECT_LT(row.scale() * 448, 2 * largest);
  }
}

TEST(CacheFormat, ZerosStayZerosAndHaveAFiniteScale) {
  const std::vector<float> x(40, 0.0f);
  for (const bool key : {false, true}) {
    Row row(40);
    (key ? store_key : store_latent)(row.at(), kCodes, x.data(), 40);
    EXPECT_TRUE(std::isfinite(row.scale()));
    EXPECT_EQ(row.values(), x);
  }
}

// One channel a thousand times the others: turned, it lies on all channels alike, and so does what rounding
// takes from it: a sixteenth of 1000 / sqrt(128) at most, of which the other channels get their share.
TEST(CacheFormat, AnOutlierIsSpreadOverItsGroup) {
  std::vector<float> key = normal(128, 5);
  key[9] = 1000;
  Row row(128);
  store_key(row.at(), kCodes, key.data(), 128);
  std::vector<float> turned = key;
  hadamard(turned.data(), 128);
  EXPECT_LT(largest_magnitude(turned.data(), 128), 1.2f * 1000 / std::sqrt(128.0f));
  std::vector<float> back = row.values();
  hadamard(back.data(), 128);
  double error = 0;
  for (size_t i = 0; i < back.size(); ++i) error += std::pow(back[i] - key[i], 2);
  EXPECT_LT(std::sqrt(error), 1.01 * 1000 / 16);
}

TEST(CacheFormat, AQueryMeetsKeysAsAKeyIsStored) {
  const std::vector<float> q = normal(200, 7);
  Row row(200);
  store_key(row.at(), kCodes, q.data(), 200);
  std::vector<float> met(200), same(200);
  meet_keys(kCodes, q.data(), 200, met.data());
  EXPECT_EQ(met, row.values());
  meet_keys(DType::bf16, q.data(), 200, same.data());
  EXPECT_EQ(same, q) << "other formats take the query as it is";
  // The product of two rounded vectors: each is off by one sixteenth of its values at most.
  std::vector<float> k = normal(200, 8);
  store_key(row.at(), kCodes, k.data(), 200);
  EXPECT_NEAR(dot(met, row.values()), dot(q, k), std::sqrt(dot(q, q) * dot(k, k)) / 8);
}

TEST(CacheFormat, NanAndInfinityMakeTheirGroupNan) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const bool key : {false, true}) {
      std::vector<float> x = normal(200, 9);
      x[5] = bad;
      Row row(200);
      (key ? store_key : store_latent)(row.at(), kCodes, x.data(), 200);
      const std::vector<float> got = row.values();
      for (size_t i = 0; i < 128; ++i) EXPECT_TRUE(std::isnan(got[i])) << bad << " " << i;
      for (size_t i = 128; i < 200; ++i) EXPECT_TRUE(std::isfinite(got[i])) << bad << " " << i;
    }
  }
}

}  // namespace
}  // namespace godwit::kernels
