#include "kda_world.h"

#include <cmath>

namespace godwit::ops_test {
namespace {

// f32 recurrences over some hundred rows, and the chunk form's inverse of I + L.
constexpr Tolerance kRecurrence{1e-5, 2e-5};
constexpr Tolerance kAlikeKeys{1e-4, 2e-4};
// The chunk form with f16 operands (kernels spec §2.4): an output is the end of at most four products in a
// row, each of two operands that are off by at most 2^-11 of themselves. The condition of I + L counts as in
// f32.
constexpr double kF16Chain = 2.8284271 * 0x1p-11;
constexpr Tolerance kF16Chunk{kF16Chain, kF16Chain};
constexpr Tolerance kF16AlikeKeys{10 * kF16Chain, 10 * kF16Chain};

}  // namespace

Tolerance kda_tolerance(const std::string& backend, const KdaShape& shape, bool chunked) {
  if (chunked && backend == "cuda" && shape.d == 128) return shape.key_alike > 0 ? kF16AlikeKeys : kF16Chunk;
  return shape.key_alike > 0 ? kAlikeKeys : kRecurrence;
}

void expect_close_step(KdaWorld& got, const Matrix& got_rows, KdaWorld& expected, const Matrix& expected_rows,
                       const std::vector<SequenceSpec>& step, const std::string& backend,
                       const KdaShape& shape, std::set<int32_t>& chunked) {
  int64_t row = 0;
  Rows rows[2];  // a row's error is measured by all rows of its kind: it may be small itself
  for (const SequenceSpec& s : step) {
    SCOPED_TRACE("slot " + std::to_string(s.slot));
    if (s.kind == kernels::RowKind::prefill) chunked.insert(s.slot);
    const bool is_chunked = chunked.contains(s.slot);
    for (int32_t r = 0; r < s.rows; ++r) rows[is_chunked].push_back(row++);
    if (s.kind == kernels::RowKind::verify && s.replay == 0) continue;  // nothing committed
    expect_close(got.state(s.slot), expected.state(s.slot), kda_tolerance(backend, shape, is_chunked),
                 "state");
    expect_close(got.window(s.slot), expected.window(s.slot), kExact, "window");
  }
  for (const bool is_chunked : {false, true}) {
    expect_close(pick(got_rows, rows[is_chunked]), pick(expected_rows, rows[is_chunked]),
                 kda_tolerance(backend, shape, is_chunked), is_chunked ? "outputs after chunks" : "outputs");
  }
}

KdaWorld::KdaWorld(Side& side, const KdaShape& shape, std::byte* memory) : side_(side), shape_(shape) {
  const int64_t w = shape.width();
  const int64_t window_row = 3 * w * size_of(shape.window);
  int64_t at = 64;  // a layer is not the first thing in a slot
  const auto place = [&at](int64_t bytes) {
    const int64_t here = at;
    at += (bytes + 63) / 64 * 64;
    return here;
  };
  layout_.state_offset = place(w * shape.d * 4);
  layout_.window_offset = place((shape.taps - 1) * window_row);
  layout_.pending_raw_offset = place(shape.pending * window_row);
  layout_.pending_key_offset = place(shape.pending * w * 4);
  layout_.pending_delta_offset = place(shape.pending * w * 4);
  layout_.pending_decay_offset = place(shape.pending * w * 4);
  layout_.slot_stride = shape.slot_stride ? shape.slot_stride : at;
  layout_.window_dtype = shape.window;
  layout_.base = memory ? memory : side.raw(shape.slots * layout_.slot_stride);
  conv_ = side.floats(random_matrix(51, 3 * w, shape.taps, 0.6f).v);
  std::vector<float> a_exp;
  for (int64_t h = 0; h < shape.heads; ++h) a_exp.push_back(std::exp(noise(52, static_cast<uint64_t>(h))));
  a_exp_ = side.floats(a_exp);
  dt_bias_ = side.floats(random_matrix(53, 1, w).v);
}

KdaWorld::Inputs KdaWorld::inputs(const Step& step) const {
  const int64_t w = shape_.width();
  Matrix raw(step.view.rows, 3 * w);
  Matrix beta(step.view.rows, shape_.heads);
  step.each_row([&](int64_t row, const SequenceSpec& s, int64_t position) {
    const uint64_t token = s.stream * 1000003u + static_cast<uint64_t>(position);
    for (int64_t c = 0; c < 3 * w; ++c) {
      const auto channel = static_cast<uint64_t>(c);
      raw.at(row, c) = noise(54, token, channel) * (c >= 2 * w ? shape_.value_scale : 1.0f);
      if (c >= w && c < 2 * w) {
        raw.at(row, c) = (1 - shape_.key_alike) * raw.at(row, c) + shape_.key_alike * noise(55, 0, channel);
      }
    }
    for (int64_t h = 0; h < shape_.heads; ++h)
      beta.at(row, h) = 2 * noise(57, token, static_cast<uint64_t>(h));
  });
  return {raw, beta};
}

Matrix KdaWorld::run(const std::vector<SequenceSpec>& specs) {
  const Step step(side_, specs);
  const int64_t w = shape_.width();
  const auto [raw, beta] = inputs(step);
  Matrix forget(step.view.rows, w);
  step.each_row([&, &f = forget](int64_t row, const SequenceSpec& s, int64_t position) {
    const uint64_t token = s.stream * 1000003u + static_cast<uint64_t>(position);
    for (int64_t c = 0; c < w; ++c)
      f.at(row, c) = shape_.decay_scale * noise(56, token, static_cast<uint64_t>(c));
  });
  const View qkv = side_.output(step.view.rows, 3 * w);
  const View out = side_.output(step.view.rows, w);
  const kernels::KdaGates gates{side_.input(forget), side_.input(beta), a_exp_, dt_bias_, -5};
  side_.ops.kda_replay(step.view, {shape_.heads, shape_.d, shape_.taps, layout_});
  side_.ops.kda_conv(step.view, {side_.input(raw), conv_, shape_.taps, layout_, qkv});
  side_.ops.kda_step(step.view, {qkv, gates, layout_, out});
  side_.ops.kda_chunk(step.view, {qkv, gates, layout_, out});
  return side_.read(out);
}

Matrix KdaWorld::mix(const std::vector<SequenceSpec>& specs) {
  const Step step(side_, specs);
  const int64_t rows = step.view.rows, w = shape_.width(), low = shape_.d;
  const auto [raw, beta] = inputs(step);
  Matrix low_forget(rows, low), low_gate(rows, low);
  step.each_row([&, &f = low_forget, &g = low_gate](int64_t row, const SequenceSpec& s, int64_t position) {
    const uint64_t token = s.stream * 1000003u + static_cast<uint64_t>(position);
    for (int64_t c = 0; c < low; ++c) {
      f.at(row, c) = shape_.decay_scale * noise(61, token, static_cast<uint64_t>(c));
      g.at(row, c) = 3 * noise(62, token, static_cast<uint64_t>(c));
    }
  });
  // Poison between the rows that a launch may copy in pieces of 16 bytes.
  const auto input = [&](const Matrix& m) { return side_.input(m, DType::f32, 4); };
  const float scale = 1 / std::sqrt(static_cast<float>(low));
  const auto weight = [&](uint64_t seed) {
    Weight made;
    made.data = side_.input(random_matrix(seed, w, low, scale), DType::bf16);
    return made;
  };
  const View forget = side_.output(rows, w), gate = side_.output(rows, w), o = side_.output(rows, w);
  const View out = shape_.out == DType::f32 ? o : side_.output(rows, w, shape_.out);
  side_.ops.kda_mix(step.view,
                    {.conv = {input(raw), conv_, shape_.taps, layout_, side_.output(rows, 3 * w)},
                     .forget = {input(low_forget), weight(63), forget},
                     .gate = {input(low_gate), weight(64), gate},
                     .gates = {forget, side_.input(beta), a_exp_, dt_bias_, -5},
                     .norm = {o, gate, side_.floats(random_matrix(65, 1, low, 0.5f, 1).v), low, 1e-5f, out}});
  return side_.read(out);
}

Matrix KdaWorld::state(int32_t slot) {
  std::byte* base = layout_.base + slot * layout_.slot_stride;
  return side_.read(make_view(base + layout_.state_offset, DType::f32, shape_.width(), shape_.d));
}

Matrix KdaWorld::window(int32_t slot) {
  std::byte* base = layout_.base + slot * layout_.slot_stride;
  return side_.read(
      make_view(base + layout_.window_offset, shape_.window, shape_.taps - 1, 3 * shape_.width()));
}

}  // namespace godwit::ops_test
