#include <fmt/core.h>

#include "kda_world.h"

namespace godwit::ops_test {
namespace {

using kernels::RowKind;

SequenceSpec sequence(RowKind kind, int64_t first, int32_t rows, int32_t slot, uint64_t stream,
                      int32_t replay = 0) {
  return {.kind = kind, .first = first, .rows = rows, .slot = slot, .replay = replay, .stream = stream};
}

void expect_same_slots(KdaWorld& got, KdaWorld& expected, const std::vector<int32_t>& slots) {
  for (const int32_t slot : slots) {
    expect_same_bits(got.state(slot), expected.state(slot), fmt::format("state of slot {}", slot));
    expect_same_bits(got.window(slot), expected.window(slot), fmt::format("window of slot {}", slot));
  }
}

TEST_P(Backends, KdaMixedStepsMatchTheOracle) {
  for (const KdaShape shape :
       {KdaShape{.heads = 3, .d = 16}, KdaShape{.heads = 1, .d = 24}, KdaShape{.heads = 3, .d = 48},
        KdaShape{.heads = 2, .d = 128}, KdaShape{.heads = 2, .d = 40, .decay_scale = 40},
        KdaShape{.heads = 1, .d = 128, .decay_scale = 40},
        KdaShape{.heads = 1, .d = 128, .value_scale = 1e6f},
        KdaShape{.heads = 2, .d = 128, .decay_scale = 0.1f, .key_alike = 0.95f},
        KdaShape{.heads = 2, .d = 32, .decay_scale = 0.1f, .key_alike = 0.95f},
        KdaShape{.heads = 2, .d = 24, .window = DType::bf16}}) {
    SCOPED_TRACE(fmt::format("{} heads of {}", shape.heads, shape.d));
    Side sides[2] = {Side(oracle()), Side(backend(GetParam()))};
    KdaWorld expected(sides[0], shape);
    KdaWorld got(sides[1], shape);
    const std::vector<std::vector<SequenceSpec>> steps = {
        {sequence(RowKind::prefill, 0, 65, 1, 1), sequence(RowKind::prefill, 0, 1, 2, 2),
         sequence(RowKind::prefill, 0, 128, 3, 3)},
        {sequence(RowKind::decode, 65, 1, 1, 1), sequence(RowKind::forced, 1, 7, 2, 2),
         sequence(RowKind::verify, 0, 3, 4, 4), sequence(RowKind::prefill, 128, 63, 3, 3),
         sequence(RowKind::prefill, 0, 127, 5, 5)},
        {sequence(RowKind::decode, 66, 1, 1, 1), sequence(RowKind::verify, 2, 6, 4, 4, 2),
         sequence(RowKind::draft, 8, 2, 2, 2)},
    };
    std::set<int32_t> chunked;
    for (size_t i = 0; i < steps.size(); ++i) {
      SCOPED_TRACE(fmt::format("step {}", i));
      const Matrix rows = got.run(steps[i]);
      expect_close_step(got, rows, expected, expected.run(steps[i]), steps[i], GetParam(), shape, chunked);
    }
  }
}

TEST_P(Backends, KdaChunkMatchesTheOracleAtEveryLength) {
  for (const KdaShape shape :
       {KdaShape{.heads = 2, .d = 24, .decay_scale = 3}, KdaShape{.heads = 1, .d = 128}}) {
    const Tolerance tolerance = kda_tolerance(GetParam(), shape, true);
    for (const int32_t rows : {1, 2, 15, 16, 17, 31, 63, 64, 65, 127, 129, 200, 300}) {
      SCOPED_TRACE(fmt::format("{} rows of {}", rows, shape.d));
      Side reference(oracle());
      Side tested(backend(GetParam()));
      KdaWorld expected(reference, shape);
      KdaWorld got(tested, shape);
      const std::vector<SequenceSpec> step = {sequence(RowKind::prefill, 0, rows, 1, 7)};
      expect_close(got.run(step), expected.run(step), tolerance, "outputs");
      expect_close(got.state(1), expected.state(1), tolerance, "state");
    }
  }
}

TEST_P(EveryBackend, KdaSlicedPrefillIsTheWholeBitForBit) {
  for (const KdaShape shape :
       {KdaShape{.heads = 2, .d = 16}, KdaShape{.heads = 2, .d = 24}, KdaShape{.heads = 2, .d = 48},
        KdaShape{.heads = 2, .d = 64}, KdaShape{.heads = 2, .d = 128},
        KdaShape{.heads = 1, .d = 128, .value_scale = 1e3f}}) {
    for (const auto run : {&KdaWorld::run, &KdaWorld::mix}) {
      SCOPED_TRACE(fmt::format("{} {}", run == &KdaWorld::mix ? "mix of" : "ops of", shape.d));
      Side s(backend(GetParam()));
      KdaWorld whole(s, shape);
      KdaWorld sliced(s, shape);
      const Matrix at_once = (whole.*run)({sequence(RowKind::prefill, 0, 330, 1, 1)});
      Matrix pieces(0, at_once.cols);
      for (const auto& [first, rows] : {std::pair{0, 64}, {64, 128}, {192, 64}, {256, 74}}) {
        const Matrix part = (sliced.*run)({sequence(RowKind::prefill, first, rows, 1, 1)});
        pieces.v.insert(pieces.v.end(), part.v.begin(), part.v.end());
        pieces.rows += part.rows;
      }
      expect_same_bits(pieces, at_once, "outputs");
      expect_same_slots(sliced, whole, {1});
    }
  }
}

// A bf16 window rounds the raw inputs before the taps of their own step too, or a slice would change bits.
TEST_P(EveryBackend, KdaSlicedPrefillWithBf16WindowIsTheWholeBitForBit) {
  for (const int64_t d : {24, 128}) {
    for (const auto run : {&KdaWorld::run, &KdaWorld::mix}) {
      SCOPED_TRACE(fmt::format("{} {}", run == &KdaWorld::mix ? "mix of" : "ops of", d));
      const KdaShape shape{.heads = 2, .d = d, .window = DType::bf16};
      Side s(backend(GetParam()));
      KdaWorld whole(s, shape);
      KdaWorld sliced(s, shape);
      const Matrix at_once = (whole.*run)({sequence(RowKind::prefill, 0, 70, 1, 1)});
      (sliced.*run)({sequence(RowKind::prefill, 0, 64, 1, 1)});
      const Matrix rest = (sliced.*run)({sequence(RowKind::prefill, 64, 6, 1, 1)});
      expect_same_bits(rest, pick(at_once, {64, 65, 66, 67, 68, 69}), "outputs");
      expect_same_slots(sliced, whole, {1});
    }
  }
}

TEST_P(EveryBackend, KdaVerifyAndReplayIsPlainDecodeBitForBit) {
  for (const int64_t d : {16, 24, 48, 128}) {
    for (const int64_t start : {0, 1, 2, 70}) {  // from position 0 the window is short
      for (int32_t accepted = 0; accepted <= 6; ++accepted) {
        SCOPED_TRACE(fmt::format("d {} from {} accepted {}", d, start, accepted));
        Side s(backend(GetParam()));
        KdaWorld plain(s, {.heads = 2, .d = d});
        KdaWorld drafted(s, {.heads = 2, .d = d});
        if (start > 0) {
          const auto prompt = sequence(RowKind::prefill, 0, static_cast<int32_t>(start), 1, 1);
          plain.run({prompt});
          drafted.run({prompt});
        }
        Matrix decoded(0, 2 * d);
        for (int32_t i = 0; i < 6; ++i) {
          const Matrix row = plain.run({sequence(RowKind::decode, start + i, 1, 1, 1)});
          decoded.v.insert(decoded.v.end(), row.v.begin(), row.v.end());
          ++decoded.rows;
        }
        const Matrix verified = drafted.run({sequence(RowKind::verify, start, 6, 1, 1)});
        expect_same_bits(verified, decoded, "verify rows = decode rows");
        // The next verify replays the accepted rows; its outputs and what it commits must be plain decode's.
        const Matrix next = drafted.run({sequence(RowKind::verify, start + accepted, 4, 1, 1, accepted)});
        KdaWorld kept(s, {.heads = 2, .d = d});
        if (start > 0) kept.run({sequence(RowKind::prefill, 0, static_cast<int32_t>(start), 1, 1)});
        if (accepted > 0) kept.run({sequence(RowKind::forced, start, accepted, 1, 1)});
        if (start + accepted > 0) expect_same_slots(drafted, kept, {1});
        expect_same_bits(next, kept.run({sequence(RowKind::forced, start + accepted, 4, 1, 1)}), "next rows");
      }
    }
  }
}

TEST_P(EveryBackend, KdaSequencesDoNotSeeEachOther) {
  const std::vector<SequenceSpec> prompts = {
      sequence(RowKind::prefill, 0, 70, 1, 1), sequence(RowKind::prefill, 0, 64, 2, 2),
      sequence(RowKind::prefill, 0, 3, 3, 3), sequence(RowKind::prefill, 0, 129, 4, 4)};
  const std::vector<SequenceSpec> mixed = {
      sequence(RowKind::decode, 70, 1, 1, 1), sequence(RowKind::verify, 3, 5, 3, 3),
      sequence(RowKind::prefill, 64, 100, 2, 2), sequence(RowKind::prefill, 0, 33, 5, 5)};
  for (const KdaShape shape : {KdaShape{.heads = 3, .d = 24}, KdaShape{.heads = 1, .d = 128}}) {
    Side s(backend(GetParam()));
    KdaWorld together(s, shape);
    KdaWorld alone(s, shape);
    for (const auto& step : {prompts, mixed}) {
      const Matrix all = together.run(step);
      int64_t row = 0;
      for (const SequenceSpec& spec : step) {
        Rows rows;
        for (int32_t r = 0; r < spec.rows; ++r) rows.push_back(row++);
        expect_same_bits(alone.run({spec}), pick(all, rows), fmt::format("slot {}", spec.slot));
      }
    }
    expect_same_slots(together, alone, {1, 2, 3, 4, 5});
  }
}

TEST_P(Backends, GatedNorm) {
  for (const auto& [heads, d] : {std::pair<int64_t, int64_t>{3, 16}, {1, 24}, {3, 48}, {2, 128}, {5, 7}}) {
    for (const int64_t rows : kRowCounts) {
      const Matrix o = random_matrix(58, rows, heads * d, 3);
      const Matrix z = random_matrix(59, rows, heads * d, 4);
      check_row_op(
          GetParam(), rows,
          [&, width = heads * d, d = d](Side& s, const Rows& r) {
            const View out = s.output(static_cast<int64_t>(r.size()), width);
            s.ops.gated_norm({s.input(pick(o, r)), s.input(pick(z, r)),
                              s.floats(random_matrix(60, 1, d, 0.5f, 1).v), d, 1e-5f, out});
            return s.read(out);
          },
          kF32, fmt::format("{} heads of {}", heads, d));
    }
  }
}

}  // namespace
}  // namespace godwit::ops_test
