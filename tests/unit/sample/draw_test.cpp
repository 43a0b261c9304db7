#include "sample/draw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

namespace godwit::sample {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

Sampled draw(std::vector<float> logits, const SamplingRow& row, const RowContext& context = {}) {
  std::vector<Candidate> space(logits.size());
  return sample_row(logits.data(), static_cast<int64_t>(logits.size()), row, context, space.data());
}

// How often each id is drawn over positions 0 … n - 1.
std::vector<int> counts(const std::vector<float>& logits, SamplingRow row, int n,
                        const RowContext& context = {}) {
  std::vector<int> count(logits.size());
  for (row.position = 0; row.position < n; ++row.position) {
    ++count[static_cast<size_t>(draw(logits, row, context).id)];
  }
  return count;
}

std::set<int> drawn_ids(const std::vector<float>& logits, const SamplingRow& row, int n = 3000) {
  std::set<int> ids;
  const std::vector<int> count = counts(logits, row, n);
  for (size_t i = 0; i < count.size(); ++i) {
    if (count[i] > 0) ids.insert(static_cast<int>(i));
  }
  return ids;
}

double chi_square(const std::vector<int>& count, const std::vector<double>& p) {
  double n = 0, sum = 0;
  for (const int c : count) n += c;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) {
      EXPECT_EQ(count[i], 0) << "id " << i;
      continue;
    }
    sum += (count[i] - n * p[i]) * (count[i] - n * p[i]) / (n * p[i]);
  }
  return sum;
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  double sum = 0;
  for (const float l : logits) sum += p.emplace_back(std::exp(l / temperature));
  for (double& v : p) v /= sum;
  return p;
}

const std::vector<float> kLogits = {0.5f, -1, 2, 0, 1.5f, -0.5f, 1, -2, 0.25f, 0.75f};

// Critical values at p = 0.001.
constexpr double kChi9 = 27.88, kChi3 = 16.27;

TEST(Draw, GreedyTakesTheLargestAndTheLowerIdOfATie) {
  SamplingRow row;
  row.temperature = 0;
  EXPECT_EQ(draw({1, 3, 2}, row).id, 1);
  EXPECT_EQ(draw({1, 3, 3, 3}, row).id, 1);
  EXPECT_EQ(draw({-kInf, -kInf, -7}, row).id, 2);
}

TEST(Draw, FollowsTheDistributionAtAnyTemperature) {
  for (const float temperature : {0.5f, 1.0f, 1.7f}) {
    SamplingRow row;
    row.seed = 11;
    row.temperature = temperature;
    EXPECT_LT(chi_square(counts(kLogits, row, 40000), softmax(kLogits, temperature)), kChi9) << temperature;
  }
}

// Along each key the numbers must be uniform too, not only along positions.
TEST(Draw, FollowsTheDistributionAlongSeedsPromptsAndChoices) {
  for (int key = 0; key < 3; ++key) {
    std::vector<int> count(kLogits.size());
    for (uint32_t i = 0; i < 40000; ++i) {
      SamplingRow row;
      row.seed = key == 0 ? i : 3;
      row.prompt_index = key == 1 ? i : 0;
      row.choice_index = key == 2 ? i : 0;
      ++count[static_cast<size_t>(draw(kLogits, row).id)];
    }
    EXPECT_LT(chi_square(count, softmax(kLogits, 1)), kChi9) << "key " << key;
  }
}

TEST(Draw, TopKKeepsExactlyKAndRenormalises) {
  SamplingRow row;
  row.seed = 12;
  row.top_k = 4;  // ids 2, 4, 6, 9
  std::vector<double> p(10);
  double sum = 0;
  for (const size_t i : {2, 4, 6, 9}) sum += p[i] = std::exp(kLogits[i]);
  for (double& v : p) v /= sum;
  EXPECT_LT(chi_square(counts(kLogits, row, 20000), p), kChi3);
  row.top_k = 1;
  EXPECT_EQ(drawn_ids(kLogits, row), (std::set<int>{2}));
  row.top_k = 3;  // of five equal ids the lower three
  EXPECT_EQ(drawn_ids({1, 1, 1, 1, 1}, row), (std::set<int>{0, 1, 2}));
  row.top_k = 50;  // more than there are
  EXPECT_EQ(drawn_ids({1, 1, -kInf}, row), (std::set<int>{0, 1}));
}

TEST(Draw, TopPKeepsTheShortestRunThatReachesIt) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};
  SamplingRow row;
  const auto kept = [&](float top_p) {
    row.top_p = top_p;
    return drawn_ids(logits, row);
  };
  EXPECT_EQ(kept(0.0001f), (std::set<int>{1}));
  EXPECT_EQ(kept(0.39f), (std::set<int>{1}));
  EXPECT_EQ(kept(0.45f), (std::set<int>{1, 3}));
  EXPECT_EQ(kept(0.75f), (std::set<int>{1, 2, 3}));
  EXPECT_EQ(kept(0.95f), (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(kept(1.0f), (std::set<int>{0, 1, 2, 3}));
  row.top_k = 2;  // top_p of what top_k left: 4/7, 3/7
  EXPECT_EQ(kept(0.55f), (std::set<int>{1}));
  EXPECT_EQ(kept(0.6f), (std::set<int>{1, 3}));
}

TEST(Draw, MinPIsRelativeToTheMostLikely) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};
  SamplingRow row;
  row.min_p = 0.6f;  // 0.24 and more
  EXPECT_EQ(drawn_ids(logits, row), (std::set<int>{1, 3}));
  row.min_p = 1;
  EXPECT_EQ(drawn_ids(logits, row), (std::set<int>{1}));
  row.min_p = 0;
  EXPECT_EQ(drawn_ids(logits, row).size(), 4u);
}

// The blocks of the selection (64, then four times more) must not change what is kept.
TEST(Draw, TopPOverAWideVocabularyMatchesASort) {
  std::vector<float> logits(5000);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>((i * 2654435761u) % 1009) * 0.004f;  // many ties
  }
  for (const float top_p : {0.01f, 0.1f, 0.5f, 0.9f, 0.999f}) {
    std::vector<Candidate> sorted;
    double total = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      sorted.push_back({logits[i], static_cast<int32_t>(i)});
      total += std::exp(static_cast<double>(logits[i]));
    }
    std::stable_sort(sorted.begin(), sorted.end(), [](auto& a, auto& b) { return a.value > b.value; });
    std::set<int> kept;
    double sum = 0;
    for (const Candidate& c : sorted) {
      kept.insert(c.id);
      sum += std::exp(static_cast<double>(c.value));
      if (sum >= total * top_p * (1 + 1e-12)) break;
    }
    SamplingRow row;
    row.top_p = top_p;
    row.seed = 5;
    for (row.position = 0; row.position < 100; ++row.position) {
      EXPECT_TRUE(kept.contains(draw(logits, row).id)) << top_p;
    }
  }
}

TEST(Draw, NeverDrawsWhatIsBannedMaskedOrSuppressed) {
  const uint32_t banned[] = {0b0000000100};
  const uint32_t mask[] = {0b1110111111};
  const int32_t stops[] = {4};
  RowContext context{.mask = mask, .banned = banned, .stop_ids = stops, .stop_count = 1};
  SamplingRow row;
  row.temperature = 5;
  row.stop_suppressed = 1;
  const std::vector<int> count = counts(kLogits, row, 20000, context);
  for (size_t i = 0; i < count.size(); ++i) {
    EXPECT_EQ(count[i] == 0, i == 2 || i == 4 || i == 6) << i;
  }
}

TEST(Draw, RowsThatCannotBeDrawnFromSaySo) {
  for (const float bad : {std::nanf(""), kInf}) {
    const Sampled s = draw({1, bad, 2}, {});
    EXPECT_EQ(s.finite, 0);
    EXPECT_EQ(s.id, -1);
  }
  EXPECT_EQ(draw({-kInf, -kInf}, {}).finite, 0);
  EXPECT_EQ(draw({-kInf, 3}, {}).id, 1);
}

TEST(Draw, ExtremeTemperaturesStayFinite) {
  SamplingRow row;
  row.temperature = 1e-6f;
  EXPECT_EQ(drawn_ids({1, 3e4f, -3e4f, 2}, row), (std::set<int>{1}));
  row.temperature = 1e6f;
  EXPECT_EQ(drawn_ids({1, 3, -3, 2}, row).size(), 4u);
}

TEST(Draw, LogprobsAreThoseBeforeTemperatureAndCuts) {
  SamplingRow row;
  row.temperature = 0.3f;
  row.top_k = 1;
  row.top_logprobs = 3;
  const Sampled s = draw(kLogits, row);
  const std::vector<double> p = softmax(kLogits, 1);
  EXPECT_EQ(s.id, 2);
  EXPECT_NEAR(s.logprob, std::log(p[2]), 1e-6);
  ASSERT_EQ(s.top_count, 3);
  const int expected[] = {2, 4, 6};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(s.top_ids[i], expected[i]);
    EXPECT_NEAR(s.top_logprobs[i], std::log(p[static_cast<size_t>(expected[i])]), 1e-6);
  }
  row.top_logprobs = 20;  // more than are possible
  EXPECT_EQ(draw({1, -kInf, 1}, row).top_count, 2);
  row.top_logprobs = 0;
  EXPECT_EQ(draw(kLogits, row).top_count, 0);
  EXPECT_NEAR(draw(kLogits, row).logprob, std::log(p[2]), 1e-6);
}

}  // namespace
}  // namespace godwit::sample
