// The known answers of glm5_next spec §21 through the op interface.
#include <algorithm>
#include <cmath>

#include "harness.h"
#include "step_builder.h"

namespace godwit::ops_test {
namespace {

using kernels::RowKind;

void expect_near(const Matrix& got, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(got.v.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(got.v[i], expected[i], tolerance * std::max(1.0, std::fabs(expected[i]))) << "element " << i;
  }
}

Matrix matrix(int64_t rows, std::vector<float> v) {
  Matrix m;
  m.rows = rows;
  m.cols = static_cast<int64_t>(v.size()) / rows;
  m.v = std::move(v);
  return m;
}

TEST_P(EveryBackend, KnownAnswerMhc) {
  Side s(backend(GetParam()));
  Matrix fn(24, 8);
  std::vector<float> base;
  for (int64_t r = 0; r < 24; ++r) {
    for (int64_t c = 0; c < 8; ++c) fn.at(r, c) = static_cast<float>((7 * r + 3 * c) % 11 - 5) / 10;
    base.push_back(static_cast<float>((5 * r) % 9 - 4) / 4);
  }
  const View streams = s.input(matrix(1, {1, 2, 3, -1, 0, 1, -2, 0.5f}));
  const View mix = s.output(1, 20);
  const View x = s.output(1, 2);
  s.ops.mhc_collapse(
      {streams, {s.input(fn), s.floats(base), s.floats({0.5f, 1.0f, 1.5f})}, 1e-5f, 1e-6f, 20, mix, x});
  expect_near(s.read(x), {0.7887168, 0.4719774}, 1e-6);
  expect_near(s.read(mix), {1.0328304, 1.4118639, 0.5740140, 1.5658664,  //
                            0.0304553, 0.0079112, 0.9188878, 0.0401473,  //
                            0.2620262, 0.1142956, 0.0442571, 0.5800921,  //
                            0.7044147, 0.0648507, 0.0353759, 0.1959667,  //
                            0.0031028, 0.8129414, 0.0014782, 0.1837929},
              1e-6);
  s.ops.mhc_expand({mix, s.input(matrix(1, {1, -1})), streams});
  expect_near(s.read(streams),
              {1.8431585, -0.5279798, 0.1367792, -1.0390157, 1.6227166, 1.2556195, 2.9787040, -1.7778007},
              2e-6);
}

// One head of d = 2; the gates are given as log-decay and beta, so the forget gate and b are their inverses.
class KdaKnownAnswer {
 public:
  explicit KdaKnownAnswer(Side& side) : s(side) {
    state.base = s.raw(1024);
    state.state_offset = 0;
    state.pending_key_offset = 256;
    state.pending_delta_offset = 320;
    state.pending_decay_offset = 384;
    state.slot_stride = 512;
  }

  void run(const std::vector<SequenceSpec>& specs, bool chunk) {
    const Step step(s, specs);
    const Matrix qkv = matrix(3, {1, 2, 0.5f, -1, 2, 1, -1, 1, 1, 1, -1, 3, 0.3f, 0.4f, -2, 1, 0.5f, 0.5f});
    const double decay[6] = {-0.1, -0.7, -2, -0.01, -0.5, -4.9};
    const double write_strength[3] = {0.25, 0.9, 0.6};
    Matrix forget(3, 2), beta(3, 1);
    for (int64_t i = 0; i < 6; ++i) forget.v[i] = logit(decay[i] / -5);
    for (int64_t i = 0; i < 3; ++i) beta.v[i] = logit(write_strength[i]);
    const View out = s.output(3, 2);
    const kernels::KdaGates gates{s.input(forget), s.input(beta), s.floats({1}), s.floats({0, 0}), -5};
    if (chunk) {
      s.ops.kda_chunk(step.view, {s.input(qkv), gates, state, out});
    } else {
      s.ops.kda_step(step.view, {s.input(qkv), gates, state, out});
    }
    outputs = s.read(out);
    final_state = s.read(make_view(state.base + state.slot_stride, DType::f32, 2, 2));
  }

  Matrix outputs;      // [3, 2]
  Matrix final_state;  // [2, 2] of slot 1

 private:
  static float logit(double p) { return static_cast<float>(std::log(p / (1 - p))); }

  Side& s;
  kernels::KdaState state;
};

TEST_P(EveryBackend, KnownAnswerKda) {
  Side s(backend(GetParam()));
  for (const bool chunk : {false, true}) {
    KdaKnownAnswer kda(s);
    kda.run({{.kind = chunk ? RowKind::prefill : RowKind::forced, .first = 0, .rows = 3, .slot = 1}}, chunk);
    expect_near(kda.outputs, {-0.2121319, -0.1060660, -0.2365127, -0.1182563, -0.1328325, 0.4060187}, 2e-6);
    expect_near(kda.final_state, {-0.4025517, 0.3710494, 0.0670965, 0.4394609}, 2e-6);
  }
}

TEST_P(EveryBackend, KnownAnswerConv) {
  Side s(backend(GetParam()));
  kernels::KdaState state;
  state.base = s.raw(1024);
  state.slot_stride = 256;
  const Step step(s, {{.kind = RowKind::prefill, .first = 0, .rows = 5, .slot = 2}});
  const View out = s.output(5, 3);
  // Taps 1, 2, 3, 4 over u = 1, 10, 100, 1000, 10000 in channel 0; the last tap is the current token.
  const Matrix raw = matrix(5, {1, 0, -1, 10, 0, 0, 100, 0, 0, 1000, 0, 0, 10000, 0, 0});
  s.ops.kda_conv(step.view, {s.input(raw), s.floats({1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}), 4, state, out});
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  expect_near(s.read(out),
              {silu(4), 0, silu(-4), silu(43), 0, silu(-3), silu(432), 0, silu(-2), silu(4321), 0, silu(-1),
               silu(43210), 0, 0},
              1e-6);
  expect_same_bits(s.read(make_view(state.base + 2 * 256, DType::f32, 3, 3)),
                   matrix(3, {100, 0, 0, 1000, 0, 0, 10000, 0, 0}), "window");
}

TEST_P(EveryBackend, KnownAnswerPooledKey) {
  Side s(backend(GetParam()));
  kernels::DsaCache cache;
  cache.base = s.raw(4096);
  cache.page_stride = 512;
  cache.ring = s.raw(1024);
  cache.ring_stride = 256;
  cache.ring_length = 8;
  const Step step(s, {{.kind = RowKind::prefill, .first = 0, .rows = 4, .slot = 1, .pages = {3}}});
  const float* ape = s.floats({0.1f, 0, 0, 0.1f, -0.1f, 0, 0, -0.1f});
  s.ops.index_write(step.view, {s.input(matrix(4, {1, 2, 3, 4, 5, 6, 7, 8})),
                                s.input(matrix(4, {0, 1, 1, 0, 0.5f, -1, -1, 2})), ape, 4, cache});
  expect_near(s.read(make_view(cache.base + 3 * 512, DType::f32, 1, 2)), {3.3949962, 6.0265067}, 1e-6);
}

TEST_P(EveryBackend, KnownAnswerAttention) {
  Side s(backend(GetParam()));
  kernels::DsaCache cache;
  cache.base = s.raw(64 * 8);
  cache.page_stride = 64 * 8;
  const SequenceSpec prompt{.kind = RowKind::prefill, .first = 0, .rows = 6, .slot = 1, .pages = {0}};
  const Step writing(s, {prompt});
  s.ops.latent_write(writing.view, {s.input(matrix(6, {1, 0, 2, 0, 3, 0, 4, 0, 5, 1, 6, 2})), cache});
  // Row 5 with no pool chosen sees its tail 4, 5 only; with pool 0 it sees everything.
  const Step query(s, {{.kind = RowKind::decode, .first = 5, .rows = 1, .slot = 1, .pages = {0}}});
  for (const bool pool_chosen : {false, true}) {
    const View out = s.output(1, 2);
    s.ops.mla_attend(
        query.view,
        {s.input(matrix(1, {1, 1})), cache, s.input(matrix(1, {pool_chosen ? 0.0f : -1.0f}), DType::i32),
         s.input(matrix(1, {pool_chosen ? 1.0f : 0.0f}), DType::i32), 4, 1, 0.5f, out});
    double sum = 0, x = 0, y = 0;
    const double latents[6][2] = {{1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 1}, {6, 2}};
    for (int j = pool_chosen ? 0 : 4; j < 6; ++j) {
      const double p = std::exp(0.5 * (latents[j][0] + latents[j][1]));
      sum += p;
      x += p * latents[j][0];
      y += p * latents[j][1];
    }
    expect_near(s.read(out), {x / sum, y / sum}, 2e-6);
  }
}

// The clamp is on the gate from above only, before SiLU, and on up from both sides (trap T29).
TEST_P(EveryBackend, KnownAnswerSwiGlu) {
  Side s(backend(GetParam()));
  const View out = s.output(1, 4);
  s.ops.swiglu({s.input(matrix(1, {12, -12, 1, 0, 12, -12, -1, 5})), 10, out});
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  expect_near(s.read(out), {silu(10) * 10, silu(-12) * -10, silu(1) * -1, 0}, 1e-5);
}

// max|x| 448 gives scale 1: the codes are the values rounded to e4m3.
TEST_P(EveryBackend, KnownAnswerFp8Linear) {
  Side s(backend(GetParam()));
  Matrix x(1, 130);
  x.at(0, 0) = 448;
  x.at(0, 1) = 17;  // between 16 and 18: to even
  x.at(0, 2) = 19;  // between 18 and 20: to even
  x.at(0, 3) = 0.3f;
  x.at(0, 128) = 44.8f;  // scale 0.1 in the second group
  x.at(0, 129) = 1.7f;
  Matrix codes(2, 130);
  for (float& v : codes.v) v = 1;
  for (int64_t c = 0; c < 130; ++c) codes.at(1, c) = c == 0 || c == 128 ? 0.0f : 1.0f;
  const Weight w{s.input(codes, DType::f8_e4m3), s.floats({2, 10}), 2};
  const View out = s.output(1, 2);
  s.ops.linear({s.input(x), w, out});
  const double first = 16 + 20 + 0.3125, second = 1.6;
  expect_near(s.read(out), {2 * (448 + first) + 10 * (44.8 + second), 2 * first + 10 * second}, 1e-6);
}

}  // namespace
}  // namespace godwit::ops_test
