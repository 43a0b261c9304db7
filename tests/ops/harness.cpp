#include "harness.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>

#include "base/fault.h"
#include "hwy/targets.h"
#include "kernels/make_ops.h"

namespace godwit::ops_test {
namespace {

constexpr int kPoison = 0xff;  // every f32 and bf16 of it is NaN

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::vector<std::byte> encode(const Matrix& m, DType dtype, int64_t gap) {
  const int64_t size = size_of(dtype);
  const int64_t stride = m.cols + gap;
  std::vector<std::byte> bytes(static_cast<size_t>(m.rows * stride * size), std::byte{kPoison});
  for (int64_t r = 0; r < m.rows; ++r) {
    for (int64_t c = 0; c < m.cols; ++c) {
      std::byte* at = bytes.data() + (r * stride + c) * size;
      const float x = m.at(r, c);
      if (dtype == DType::f32) {
        std::memcpy(at, &x, 4);
      } else if (dtype == DType::bf16) {
        const bf16 rounded = to_bf16(x);
        std::memcpy(at, &rounded, 2);
      } else if (dtype == DType::f8_e4m3) {
        *at = std::byte{to_e4m3(x).bits};
      } else {
        const auto i = static_cast<int32_t>(x);
        std::memcpy(at, &i, 4);
      }
    }
  }
  return bytes;
}

float decode(const std::byte* at, DType dtype) {
  if (dtype == DType::bf16) {
    bf16 x;
    std::memcpy(&x, at, 2);
    return to_float(x);
  }
  float x;
  int32_t i;
  std::memcpy(&x, at, 4);
  std::memcpy(&i, at, 4);
  return dtype == DType::i32 ? static_cast<float>(i) : x;
}

}  // namespace

Rows all_rows(int64_t n) {
  Rows rows(static_cast<size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

Matrix pick(const Matrix& m, const Rows& rows) {
  Matrix out(static_cast<int64_t>(rows.size()), m.cols);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(m.v.begin() + rows[i] * m.cols, m.cols, out.v.begin() + static_cast<int64_t>(i) * m.cols);
  }
  return out;
}

Matrix beside(const std::vector<Matrix>& parts) {
  int64_t cols = 0;
  for (const Matrix& p : parts) cols += p.cols;
  Matrix out(parts[0].rows, cols);
  for (int64_t r = 0; r < out.rows; ++r) {
    int64_t c = 0;
    for (const Matrix& p : parts) {
      for (int64_t i = 0; i < p.cols; ++i) out.at(r, c++) = p.at(r, i);
    }
  }
  return out;
}

float noise(uint64_t a, uint64_t b, uint64_t c) {
  const uint64_t h = mix(mix(mix(a) ^ b) ^ c);
  float sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<float>((h >> (16 * i)) & 0xffffu) / 65536.0f - 0.5f;
  return sum * 1.7320508f;
}

Matrix random_matrix(uint64_t seed, int64_t rows, int64_t cols, float scale, float offset) {
  Matrix m(rows, cols);
  for (size_t i = 0; i < m.v.size(); ++i) m.v[i] = scale * noise(seed, i) + offset;
  return m;
}

Side::~Side() {
  for (void* p : owned_) ops.memory().release(p);
}

std::byte* Side::raw(int64_t bytes) {
  void* p = ops.memory().allocate(bytes + 64);
  owned_.push_back(p);
  const std::vector<std::byte> poison(static_cast<size_t>(bytes + 64), std::byte{kPoison});
  ops.memory().upload(p, poison.data(), bytes + 64);
  return static_cast<std::byte*>(p);
}

View Side::input(const Matrix& m, DType dtype, int64_t gap) {
  View v{upload(encode(m, dtype, gap)), dtype, m.rows, m.cols, m.cols + gap};
  return v;
}

View Side::output(int64_t rows, int64_t cols, DType dtype, int64_t gap) {
  return {raw(rows * (cols + gap) * size_of(dtype)), dtype, rows, cols, cols + gap};
}

Weight Side::weight(uint64_t seed, int64_t out, int64_t in, DType dtype) {
  const float scale = 1 / std::sqrt(static_cast<float>(in));
  if (dtype != DType::f8_e4m3) return {input(random_matrix(seed, out, in, scale), dtype)};
  const int64_t blocks_out = (out + kFp8Block - 1) / kFp8Block;
  const int64_t blocks_in = (in + kFp8Block - 1) / kFp8Block;
  std::vector<float> scales;
  for (int64_t i = 0; i < blocks_out * blocks_in; ++i) {
    scales.push_back(scale / 100 * (1 + 0.5f * std::fabs(noise(seed + 1, static_cast<uint64_t>(i)))));
  }
  return {input(random_matrix(seed, out, in, 150), dtype), upload(scales), blocks_in};
}

Matrix Side::read(const View& v) {
  const int64_t size = size_of(v.dtype);
  const auto bytes = download<std::byte>(v.data, v.rows * v.stride * size);
  Matrix m(v.rows, v.cols);
  bool gap_written = false;
  for (int64_t r = 0; r < v.rows; ++r) {
    const std::byte* row = bytes.data() + r * v.stride * size;
    for (int64_t c = 0; c < v.cols; ++c) m.at(r, c) = decode(row + c * size, v.dtype);
    for (int64_t b = v.cols * size; b < v.stride * size; ++b) gap_written |= row[b] != std::byte{kPoison};
  }
  EXPECT_FALSE(gap_written) << "the gap between two rows was written";
  return m;
}

namespace {

constexpr double kNothing = 1e-30;

}  // namespace

void expect_close(const Matrix& got, const Matrix& expected, Tolerance tolerance, const std::string& what) {
  ASSERT_EQ(got.rows, expected.rows) << what;
  ASSERT_EQ(got.cols, expected.cols) << what;
  double error = 0, norm = 0, worst = 0, largest = 0;
  int64_t bad = 0;
  for (size_t i = 0; i < got.v.size(); ++i) {
    const double e = expected.v[i];
    const double d = std::fabs(got.v[i] - e);
    ASSERT_TRUE(std::isfinite(e)) << what << ": the oracle gives " << e << " at " << i;
    bad += !std::isfinite(got.v[i]);
    error += d * d;
    norm += e * e;
    worst = std::max(worst, d);
    largest = std::max(largest, std::fabs(e));
  }
  EXPECT_EQ(bad, 0) << what << ": values that are not finite";
  EXPECT_LE(std::sqrt(error), tolerance.l2 * std::sqrt(norm) + kNothing) << what << ": relative L2";
  EXPECT_LE(worst, tolerance.max * largest + kNothing) << what << ": largest error";
}

void expect_same_bits(const Matrix& got, const Matrix& expected, const std::string& what) {
  ASSERT_EQ(got.rows, expected.rows) << what;
  ASSERT_EQ(got.cols, expected.cols) << what;
  for (size_t i = 0; i < got.v.size(); ++i) {
    if (std::bit_cast<uint32_t>(got.v[i]) == std::bit_cast<uint32_t>(expected.v[i])) continue;
    FAIL() << what << ": element " << i << " of width " << got.cols << " is " << got.v[i] << ", expected "
           << expected.v[i];
  }
}

namespace {

std::unique_ptr<Ops> prepared(std::unique_ptr<Ops> ops) {
  kernels::Dims dims;
  dims.hidden = 4096;
  dims.streams = 4;
  dims.vocab = 8192;
  dims.kda_heads = 8;
  dims.kda_key = 128;
  dims.conv_taps = 4;
  dims.mla_heads = 18;
  dims.latent = 512;
  dims.nope = 256;
  dims.value = 256;
  dims.index_heads = 32;
  dims.index_dim = 128;
  dims.index_pool = 4;
  dims.index_topk = 2048;
  dims.experts = 64;
  dims.experts_topk = 8;
  dims.expert_inner = 512;
  dims.shared_inner = 512;
  dims.widest_inner = 4096;
  kernels::StepLimits limits;
  limits.rows = 1024;
  limits.decode_rows = 192;
  limits.sequences = 64;
  limits.context = 1 << 19;
  limits.sampled_rows = 192;
  limits.pending_rows = 6;
  const auto ready = ops->prepare(dims, limits);
  if (!ready.ok()) ADD_FAILURE() << "prepare";
  return ops;
}

}  // namespace

namespace {

void choose_target(const std::string& name) {
  const std::map<std::string, int64_t> targets = {
      {"ssse3", HWY_SSSE3}, {"avx2", HWY_AVX2 | HWY_SSSE3}, {"avx512", HWY_AVX3 | HWY_AVX2 | HWY_SSSE3}};
  const auto found = targets.find(name);
  ASSERT_NE(found, targets.end()) << "GODWIT_TEST_TARGET " << name;
  const int64_t best = found->second & -found->second;  // the better a target, the lower its bit
  ASSERT_TRUE(hwy::SupportedTargets() & best) << "this machine has no " << name;
  hwy::SetSupportedTargetsForTest(found->second);
  hwy::GetChosenTarget().DeInit();
}

}  // namespace

Ops& backend(const std::string& name) {
  static std::map<std::string, std::unique_ptr<Ops>> made;
  if (made.empty()) {
    if (const char* target = std::getenv("GODWIT_TEST_TARGET")) choose_target(target);
    fault::arm("cpu.poison_scratch", 0, -1);
  }
  std::unique_ptr<Ops>& ops = made[name];
  if (!ops) ops = prepared(kernels::make_ops(name, 2).value());
  return *ops;
}

Ops& oracle() {
  return backend("reference");
}

std::vector<std::string> backends() {
  std::vector<std::string> names = {"cpu"};
  if (kernels::cuda_devices() > 0) names.push_back("cuda");
  return names;
}

std::vector<std::string> backends_and_oracle() {
  std::vector<std::string> names = backends();
  names.insert(names.begin(), "reference");
  return names;
}

void check_row_op(const std::string& name, int64_t rows, const RowOp& op, Tolerance tolerance,
                  const std::string& what) {
  SCOPED_TRACE(what + ", " + std::to_string(rows) + " rows");
  Side reference(oracle());
  Side tested(backend(name));
  const Matrix together = op(tested, all_rows(rows));
  expect_close(together, op(reference, all_rows(rows)), tolerance, "against the oracle");
  if (rows < 2) return;
  Rows odd, even_backwards;
  for (int64_t i = 1; i < rows; i += 2) odd.push_back(i);
  for (int64_t i = (rows - 1) / 2 * 2; i >= 0; i -= 2) even_backwards.push_back(i);
  Rows backwards = all_rows(rows);
  std::reverse(backwards.begin(), backwards.end());
  for (const Rows& some : {Rows{0}, Rows{rows - 1}, odd, even_backwards, backwards}) {
    expect_same_bits(op(tested, some), pick(together, some), "alone = together");
  }
}

std::string name_of_backend(const testing::TestParamInfo<std::string>& p) {
  return p.param;
}

INSTANTIATE_TEST_SUITE_P(Ops, Backends, testing::ValuesIn(backends()), name_of_backend);
INSTANTIATE_TEST_SUITE_P(Ops, EveryBackend, testing::ValuesIn(backends_and_oracle()), name_of_backend);

}  // namespace godwit::ops_test
