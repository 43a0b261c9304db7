// kda_mix: all of a KDA layer between its projections, against the composition of the plain ops.
#include <fmt/core.h>

#include "kda_world.h"

namespace godwit::ops_test {
namespace {

using kernels::RowKind;

SequenceSpec sequence(RowKind kind, int64_t first, int32_t rows, int32_t slot, int32_t replay = 0) {
  return {.kind = kind,
          .first = first,
          .rows = rows,
          .slot = slot,
          .replay = replay,
          .stream = static_cast<uint64_t>(slot)};
}

TEST_P(Backends, KdaMixMatchesTheOracle) {
  for (const KdaShape shape : {KdaShape{.heads = 3, .d = 48}, KdaShape{.heads = 2, .d = 128},
                               KdaShape{.heads = 1, .d = 128, .decay_scale = 20, .window = DType::bf16}}) {
    SCOPED_TRACE(fmt::format("{} heads of {}, window of {}", shape.heads, shape.d, name_of(shape.window)));
    Side sides[2] = {Side(oracle()), Side(backend(GetParam()))};
    KdaWorld expected(sides[0], shape);
    KdaWorld got(sides[1], shape);
    const std::vector<std::vector<SequenceSpec>> steps = {
        {sequence(RowKind::decode, 0, 1, 1), sequence(RowKind::forced, 0, 2, 2),
         sequence(RowKind::forced, 0, 21, 3), sequence(RowKind::verify, 0, 6, 4),
         sequence(RowKind::prefill, 0, 64, 5)},
        {sequence(RowKind::decode, 1, 1, 1), sequence(RowKind::verify, 2, 3, 2),
         sequence(RowKind::verify, 21, 6, 3), sequence(RowKind::decode, 6, 1, 4, 6),
         sequence(RowKind::prefill, 64, 3, 5)},
        {sequence(RowKind::forced, 2, 9, 1), sequence(RowKind::verify, 3, 5, 2, 1),
         sequence(RowKind::verify, 26, 6, 3, 5), sequence(RowKind::draft, 7, 2, 4),
         sequence(RowKind::decode, 67, 1, 5)},
    };
    std::set<int32_t> chunked;
    for (size_t i = 0; i < steps.size(); ++i) {
      SCOPED_TRACE(fmt::format("step {}", i));
      const Matrix rows = got.mix(steps[i]);
      expect_close_step(got, rows, expected, expected.mix(steps[i]), steps[i], GetParam(), shape, chunked);
    }
  }
}

// Several prompts in a step, of every length of a last chunk, fresh and continued, beside a decode row;
// windows of both types.
TEST_P(Backends, KdaMixOfPromptsMatchesTheOracle) {
  for (const KdaShape shape : {KdaShape{.heads = 1, .d = 48}, KdaShape{.heads = 2, .d = 128},
                               KdaShape{.heads = 1, .d = 128, .decay_scale = 20, .window = DType::bf16},
                               KdaShape{.heads = 1, .d = 128, .value_scale = 1e5f}}) {
    SCOPED_TRACE(fmt::format("{} heads of {}, window of {}", shape.heads, shape.d, name_of(shape.window)));
    Side sides[2] = {Side(oracle()), Side(backend(GetParam()))};
    KdaWorld expected(sides[0], shape);
    KdaWorld got(sides[1], shape);
    const std::vector<std::vector<SequenceSpec>> steps = {
        {sequence(RowKind::prefill, 0, 1, 1), sequence(RowKind::prefill, 0, 64, 2),
         sequence(RowKind::prefill, 0, 130, 3), sequence(RowKind::prefill, 0, 64, 4),
         sequence(RowKind::prefill, 0, 9, 5)},
        {sequence(RowKind::decode, 1, 1, 1), sequence(RowKind::prefill, 64, 2, 2),
         sequence(RowKind::prefill, 64, 83, 4), sequence(RowKind::prefill, 0, 3, 5)},
    };
    std::set<int32_t> chunked;
    for (size_t i = 0; i < steps.size(); ++i) {
      SCOPED_TRACE(fmt::format("step {}", i));
      const Matrix rows = got.mix(steps[i]);
      expect_close_step(got, rows, expected, expected.mix(steps[i]), steps[i], GetParam(), shape, chunked);
    }
  }
}

TEST_P(EveryBackend, KdaMixOfVerifyAndReplayIsPlainDecodeBitForBit) {
  for (const int64_t d : {48, 128}) {
    for (const int64_t start : {0, 2, 19}) {  // from position 0 the window is short
      for (const int32_t accepted : {0, 1, 2, 3, 6}) {
        SCOPED_TRACE(fmt::format("d {} from {} accepted {}", d, start, accepted));
        Side s(backend(GetParam()));
        const KdaShape shape{.heads = 1, .d = d};
        KdaWorld plain(s, shape), drafted(s, shape), kept(s, shape);
        Matrix decoded(0, d);
        const auto decode = [&](KdaWorld& world, int64_t rows) {
          for (int64_t i = 0; i < rows; ++i) {
            const Matrix row = world.mix({sequence(RowKind::decode, start + i, 1, 1)});
            decoded.v.insert(decoded.v.end(), row.v.begin(), row.v.end());
            ++decoded.rows;
          }
        };
        for (KdaWorld* world : {&plain, &drafted, &kept})
          if (start > 0) world->mix({sequence(RowKind::forced, 0, static_cast<int32_t>(start), 1)});
        decode(plain, 6);
        const Matrix verified = drafted.mix({sequence(RowKind::verify, start, 6, 1)});
        expect_same_bits(verified, decoded, "verify rows = decode rows");
        // The next verify folds the accepted rows in; its outputs and what it commits are plain decode's.
        const Matrix next = drafted.mix({sequence(RowKind::verify, start + accepted, 4, 1, accepted)});
        decode(kept, accepted);
        if (start + accepted > 0) {
          expect_same_bits(drafted.state(1), kept.state(1), "state");
          expect_same_bits(drafted.window(1), kept.window(1), "window");
        }
        expect_same_bits(next, kept.mix({sequence(RowKind::forced, start + accepted, 4, 1)}), "next rows");
      }
    }
  }
}

TEST_P(EveryBackend, KdaMixOfSequencesDoesNotDependOnTheOthers) {
  const std::vector<SequenceSpec> step = {
      sequence(RowKind::decode, 0, 1, 1), sequence(RowKind::verify, 0, 5, 3),
      sequence(RowKind::forced, 0, 3, 2), sequence(RowKind::prefill, 0, 33, 5)};
  Side s(backend(GetParam()));
  KdaWorld together(s, {.heads = 2, .d = 128}), alone(s, {.heads = 2, .d = 128});
  const Matrix all = together.mix(step);
  int64_t row = 0;
  for (const SequenceSpec& spec : step) {
    Rows rows;
    for (int32_t r = 0; r < spec.rows; ++r) rows.push_back(row++);
    expect_same_bits(alone.mix({spec}), pick(all, rows), fmt::format("slot {}", spec.slot));
    if (spec.kind != RowKind::verify)
      expect_same_bits(together.state(spec.slot), alone.state(spec.slot), "state");
  }
}

// So many sequences of one row that a backend may take several at once.
TEST_P(EveryBackend, KdaMixOfManySequencesIsThatOfEachBitForBit) {
#ifdef GODWIT_CUDA_EMULATED
  constexpr int64_t kHeads = 2;
  constexpr int32_t kSequences = 11;
#else
  constexpr int64_t kHeads = 8;
  constexpr int32_t kSequences = 70;
#endif
  for (const DType window : {DType::f32, DType::bf16}) {
    const KdaShape shape{.heads = kHeads, .d = 128, .window = window, .slots = kSequences + 1};
    Side s(backend(GetParam()));
    KdaWorld together(s, shape), alone(s, shape);
    for (int64_t position = 0; position < 3; ++position) {
      std::vector<SequenceSpec> step;
      for (int32_t i = 0; i < kSequences; ++i) {
        const bool verifies = i % 7 == 3 && position == 2;
        step.push_back(sequence(verifies ? RowKind::verify : RowKind::decode, position, 1, i + 1));
      }
      const Matrix all = together.mix(step);
      for (int32_t i = 0; i < kSequences; ++i) {
        const auto& spec = step[static_cast<size_t>(i)];
        expect_same_bits(alone.mix({spec}), pick(all, {i}), fmt::format("slot {}", spec.slot));
      }
    }
    for (int32_t slot = 1; slot <= kSequences; ++slot) {
      expect_same_bits(together.state(slot), alone.state(slot), fmt::format("state of slot {}", slot));
      expect_same_bits(together.window(slot), alone.window(slot), fmt::format("window of slot {}", slot));
    }
    // What the verifies kept is folded in alike.
    for (int32_t slot = 4; slot <= kSequences; slot += 7) {
      const std::vector<SequenceSpec> next = {sequence(RowKind::decode, 3, 1, slot, 1)};
      expect_same_bits(together.mix(next), alone.mix(next), fmt::format("after the verify of slot {}", slot));
    }
  }
}

// Sequences of every kind beside each other, in numbers that a backend may treat in different forms: each
// gets the bits that it gets alone, over three steps whose verifies are folded in by the next.
TEST_P(EveryBackend, KdaMixBesideAnyNumberOfSequencesIsThatOfEachBitForBit) {
#ifdef GODWIT_CUDA_EMULATED
  constexpr int64_t kHeads = 2;
  constexpr int32_t kCounts[] = {2, 5, 10};
#else
  constexpr int64_t kHeads = 8;
  constexpr int32_t kCounts[] = {4, 9, 34, 52, 65};
#endif
  constexpr int32_t kMostRows = 11;
  for (const int32_t count : kCounts) {
    SCOPED_TRACE(fmt::format("{} sequences", count));
    const KdaShape shape{.heads = kHeads,
                         .d = 128,
                         .window = count % 2 == 0 ? DType::bf16 : DType::f32,
                         .slots = count + 1,
                         .pending = kMostRows};
    Side s(backend(GetParam()));
    KdaWorld together(s, shape), alone(s, shape);
    struct Life {
      int64_t committed = 0;
      int32_t pending = 0;
    };
    std::vector<Life> lives(static_cast<size_t>(count));
    for (int32_t turn = 0; turn < 3; ++turn) {
      SCOPED_TRACE(fmt::format("turn {}", turn));
      std::vector<SequenceSpec> step;
      for (int32_t i = 0; i < count; ++i) {
        Life& life = lives[static_cast<size_t>(i)];
        const int32_t accepted = (i + turn) % (life.pending + 1);
        constexpr RowKind kKinds[] = {RowKind::decode, RowKind::verify, RowKind::forced, RowKind::decode,
                                      RowKind::verify, RowKind::draft,  RowKind::decode};
        const RowKind kind = kKinds[(i + 2 * turn) % 7];
        const int32_t most = count > 16 && i % 5 != 1 ? 3 : kMostRows;
        const int32_t rows = kind == RowKind::decode ? 1 : 1 + (5 * i + turn) % most;
        step.push_back(sequence(kind, life.committed + accepted, rows, i + 1, accepted));
        life.committed += accepted + (kind == RowKind::verify ? 0 : rows);
        life.pending = kind == RowKind::verify ? rows : 0;
      }
      const Matrix all = together.mix(step);
      int64_t row = 0;
      for (const SequenceSpec& spec : step) {
        Rows rows;
        for (int32_t r = 0; r < spec.rows; ++r) rows.push_back(row++);
        expect_same_bits(alone.mix({spec}), pick(all, rows), fmt::format("slot {}", spec.slot));
        if (lives[static_cast<size_t>(spec.slot - 1)].committed == 0) continue;
        expect_same_bits(together.state(spec.slot), alone.state(spec.slot),
                         fmt::format("state of slot {}", spec.slot));
        expect_same_bits(together.window(spec.slot), alone.window(spec.slot),
                         fmt::format("window of slot {}", spec.slot));
      }
    }
  }
}

}  // namespace
}  // namespace godwit::ops_test
