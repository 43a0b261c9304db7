// sample and history_start through the op interface: offsets, slots, and that a draw does not depend on its
// batch. What a draw is, is tested in tests/unit/sample.
#include <cmath>
#include <set>

#include "harness.h"
#include "sample/processors.h"

namespace godwit::ops_test {
namespace {

constexpr int64_t kVocab = 353, kSlots = 70;

sample::SamplingRow row_of(int64_t r) {
  sample::SamplingRow row;
  row.seed = static_cast<uint64_t>(r % 5);
  row.position = 10 + r;
  row.choice_index = static_cast<uint32_t>(r % 2);
  row.temperature = r % 4 == 0 ? 0.0f : 0.9f;
  row.top_k = r % 3 == 0 ? 40 : 0;
  row.top_p = r % 2 == 0 ? 0.9f : 1.0f;
  row.slot = static_cast<int32_t>(r + 1);
  row.history = r % 2 == 1;
  row.repetition_penalty = 1.3f;
  row.presence_penalty = 0.2f;
  row.bias_offset = static_cast<int32_t>(2 * r);
  row.bias_count = r % 4 == 1 ? 2 : 0;
  row.mask = r % 5 == 2 ? 1 : -1;
  row.top_logprobs = r % 3 == 1 ? 5 : -1;
  row.stop_suppressed = r % 2 == 0;
  if (r % 11 == 10) {
    row.scored = static_cast<int32_t>(r * 31 % kVocab);
    row.top_logprobs = 3;
  }
  return row;
}

// Columns: id, logprob, finite, top_count, top_ids[0], last_token, history of the drawn id, then the logits.
Matrix draw(Side& s, const Rows& r, const Matrix& all_logits) {
  std::vector<sample::SamplingRow> rows;
  std::vector<int32_t> bias_ids;
  std::vector<float> bias_values;
  for (const int64_t i : r) rows.push_back(row_of(i));
  for (int32_t i = 0; i < 2 * kSlots; ++i) {
    bias_ids.push_back((i * 37) % static_cast<int32_t>(kVocab));
    bias_values.push_back(3);
  }
  const int64_t words = (kVocab + 31) / 32;
  std::vector<uint32_t> masks(static_cast<size_t>(2 * words), 0xffffffffu);
  for (int64_t w = words; w < 2 * words; ++w) masks[static_cast<size_t>(w)] = 0x0ff00ff0u;
  std::vector<uint32_t> banned(static_cast<size_t>(words));
  banned[static_cast<size_t>(words - 1)] = 1;  // id 352
  kernels::Sample a;
  a.logits = s.input(pick(all_logits, r), DType::f32, 3);
  a.rows = s.upload(rows);
  a.bias_ids = s.ints(bias_ids);
  a.bias_values = s.floats(bias_values);
  a.masks = s.upload(masks);
  a.banned = s.upload(banned);
  a.stop_ids = s.ints({3, 5});
  a.stop_count = 2;
  a.history = {static_cast<int32_t*>(static_cast<void*>(s.raw(kSlots * kVocab * 4))), kVocab};
  a.last_token = s.upload(std::vector<int32_t>(kSlots, -7));
  const int32_t* prompt = s.ints({1, 2, 2, 352, 0, 7});
  for (const sample::SamplingRow& row : rows) s.ops.history_start({a.history, row.slot, prompt, 6, 6});
  a.out = static_cast<sample::Sampled*>(static_cast<void*>(s.raw(64 * sizeof(sample::Sampled))));
  s.ops.sample(a);

  const auto out = s.download<sample::Sampled>(a.out, static_cast<int64_t>(r.size()));
  const auto last = s.download<int32_t>(a.last_token, kSlots);
  const auto history = s.download<int32_t>(a.history.counts, kSlots * kVocab);
  Matrix m(static_cast<int64_t>(r.size()), 7);
  for (int64_t i = 0; i < m.rows; ++i) {
    const sample::Sampled& drawn = out[static_cast<size_t>(i)];
    const int32_t slot = rows[static_cast<size_t>(i)].slot;
    const int32_t count = drawn.finite ? history[static_cast<size_t>(slot * kVocab + drawn.id)] : -1;
    const float values[] = {static_cast<float>(drawn.id),
                            drawn.logprob,
                            static_cast<float>(drawn.finite),
                            static_cast<float>(drawn.top_count),
                            static_cast<float>(drawn.top_count > 0 ? drawn.top_ids[0] : -1),
                            static_cast<float>(last[static_cast<size_t>(slot)]),
                            static_cast<float>(count & (sample::kInPrompt - 1))};
    for (int64_t c = 0; c < 7; ++c) m.at(i, c) = values[c];
  }
  return m;
}

TEST_P(Backends, SampleMatchesTheOracleInAnyBatch) {
  const Matrix logits = random_matrix(91, 63, kVocab, 3);
  check_row_op(
      GetParam(), 63, [&](Side& s, const Rows& r) { return draw(s, r, logits); }, kExact, "sample");
}

// Draws of vocabularies that a backend may cut into parts, from spread and from tied logits.
TEST_P(Backends, SampleOfManyIdsMatchesTheOracle) {
  constexpr int64_t kMany = 6001;
  struct Cuts {
    float temperature, top_p, min_p;
    int32_t top_k;
  };
  std::vector<sample::SamplingRow> rows;
  for (const Cuts& c : {Cuts{0, 1, 0, 0}, Cuts{1, 1, 0, 0}, Cuts{0.7f, 0.9f, 0, 0}, Cuts{1, 1, 0, 40},
                        Cuts{2, 0.999f, 0, 3000}, Cuts{1, 0.3f, 0, 2}, Cuts{1, 1, 0.05f, 0},
                        Cuts{30, 1, 0, 5999}, Cuts{0.01f, 0.5f, 0, 0}, Cuts{1, 0.95f, 0.01f, 50}}) {
    sample::SamplingRow row;
    row.seed = 11;
    row.position = static_cast<int64_t>(rows.size());
    row.temperature = c.temperature;
    row.top_p = c.top_p;
    row.min_p = c.min_p;
    row.top_k = c.top_k;
    row.slot = static_cast<int32_t>(rows.size());
    row.top_logprobs = rows.size() % 3 == 0 ? 3 : -1;
    rows.push_back(row);
  }
  const auto count = static_cast<int64_t>(rows.size());
  for (const bool tied : {false, true}) {
    Matrix logits = random_matrix(93, count, kMany, 4);
    if (tied)
      for (float& v : logits.v) v = std::round(v);
    for (const uint64_t seed : {1u, 2u, 3u}) {
      for (sample::SamplingRow& row : rows) row.seed = seed;
      const auto drawn = [&](Side& s) {
        kernels::Sample a;
        a.logits = s.input(logits);
        a.rows = s.upload(rows);
        a.last_token = s.upload(std::vector<int32_t>(static_cast<size_t>(count)));
        a.out = static_cast<sample::Sampled*>(
            static_cast<void*>(s.raw(count * int64_t{sizeof(sample::Sampled)})));
        s.ops.sample(a);
        const auto out = s.download<sample::Sampled>(a.out, count);
        Matrix m(count, 3);
        for (int64_t i = 0; i < count; ++i) {
          const sample::Sampled& one = out[static_cast<size_t>(i)];
          m.at(i, 0) = static_cast<float>(one.id);
          m.at(i, 1) = rows[static_cast<size_t>(i)].top_logprobs >= 0 ? one.logprob : 0;
          m.at(i, 2) = one.top_count > 0 ? static_cast<float>(one.top_ids[one.top_count - 1]) : -1;
        }
        return m;
      };
      Side expected(oracle()), got(backend(GetParam()));
      expect_close(drawn(got), drawn(expected), kExact, tied ? "tied" : "spread");
    }
  }
}

// Rows of one slot whose penalties count the rows before: what one step after another would draw.
TEST_P(EveryBackend, SampleCountsEachRowOfASlotInTheNext) {
  constexpr int64_t kRows = 4;
  const Matrix logits = random_matrix(94, 1, kVocab, 2);
  std::vector<sample::SamplingRow> rows(kRows);
  for (int32_t i = 0; i < kRows; ++i) {
    sample::SamplingRow& row = rows[static_cast<size_t>(i)];
    row.slot = 2;
    row.history = 1;
    row.frequency_penalty = 5;
    row.position = i;
    row.temperature = i % 2 == 0 ? 0.0f : 0.8f;
    row.top_p = 0.9f;
  }
  Side s(backend(GetParam()));
  const auto draws = [&](const std::vector<std::vector<sample::SamplingRow>>& steps) {
    std::vector<int32_t> ids;
    int32_t* counts = s.upload(std::vector<int32_t>(3 * kVocab));
    int32_t* last = s.upload(std::vector<int32_t>(3));
    for (const auto& step : steps) {
      kernels::Sample a;
      a.logits = s.input(pick(logits, Rows(step.size(), 0)));
      a.rows = s.upload(step);
      a.history = {counts, kVocab};
      a.last_token = last;
      a.out =
          static_cast<sample::Sampled*>(static_cast<void*>(s.raw(kRows * int64_t{sizeof(sample::Sampled)})));
      s.ops.sample(a);
      for (const sample::Sampled& one : s.download<sample::Sampled>(a.out, static_cast<int64_t>(step.size())))
        ids.push_back(one.id);
      EXPECT_EQ(s.download<int32_t>(last, 3)[2], ids.back());
    }
    return ids;
  };
  const auto at_once = draws({rows});
  EXPECT_EQ(at_once, draws({{rows[0]}, {rows[1]}, {rows[2]}, {rows[3]}}));
  EXPECT_EQ(std::set<int32_t>(at_once.begin(), at_once.end()).size(), at_once.size()) << "penalties count";
}

TEST_P(EveryBackend, SampleWritesTokenAndHistoryOfTheSlot) {
  Side s(backend(GetParam()));
  Matrix logits = random_matrix(92, 8, kVocab, 3);
  logits.at(3, 100) = std::numeric_limits<float>::quiet_NaN();
  const Matrix got = draw(s, all_rows(8), logits);
  for (int64_t r = 0; r < 8; ++r) {
    if (r == 3) {
      EXPECT_EQ(got.at(r, 0), -1);
      EXPECT_EQ(got.at(r, 2), 0);
      EXPECT_EQ(got.at(r, 5), 0) << "last_token stays a valid id";
      continue;
    }
    EXPECT_EQ(got.at(r, 2), 1);
    EXPECT_EQ(got.at(r, 5), got.at(r, 0));
    EXPECT_EQ(got.at(r, 6), r % 2 == 1 ? 1 : 0) << "only rows with penalties count";
  }
}

TEST_P(EveryBackend, HistoryStartClearsMarksThePromptAndCountsOutput) {
  Side s(backend(GetParam()));
  int32_t* counts = s.upload(std::vector<int32_t>(3 * 10, 55));
  s.ops.history_start({{counts, 10}, 1, s.ints({4, 4, 9, 0, 4, 7, 7}), 4, 7});
  const auto got = s.download<int32_t>(counts, 30);
  std::vector<int32_t> expected(30, 55);
  std::fill_n(expected.begin() + 10, 10, 0);
  expected[10] = expected[19] = sample::kInPrompt;
  expected[14] = sample::kInPrompt | 1;
  expected[17] = 2;
  EXPECT_EQ(got, expected);
}

}  // namespace
}  // namespace godwit::ops_test
