#include "bench/step_plans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace godwit::bench {
namespace {

std::vector<int32_t> table(const schedule::StepPlan& plan, size_t sequence) {
  const schedule::PlanSequence& p = plan.sequences[sequence];
  const auto first = plan.pages.begin() + p.rows.page_offset;
  return {first, first + p.pages};
}

TEST(StepPlans, SequencesHavePagesOfTheirOwn) {
  const StepShape shape{.batch = 5, .context = 1000, .rows = 3};
  const schedule::StepPlan plan = make_plan(shape, {100, 200});
  EXPECT_EQ(plan.rows(), 15);
  EXPECT_EQ(plan.samples.size(), 15u);
  std::set<int32_t> seen;
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(plan.sequences[i].rows.kind, kernels::RowKind::verify);
    EXPECT_EQ(table(plan, i).size(), 16u);  // 1,003 tokens
    for (const int32_t page : table(plan, i)) EXPECT_TRUE(seen.insert(page).second) << page;
  }
  EXPECT_GT(*seen.begin(), 0);
  EXPECT_LE(*seen.rbegin(), shape.pages());
  for (const int32_t id : plan.ids) EXPECT_TRUE(id >= 100 && id < 200) << id;
}

TEST(StepPlans, SharedContextIsOneTableAndOwnPagesForTheRows) {
  const StepShape shape{.batch = 4, .context = 1000, .rows = 1, .shared = true};
  EXPECT_EQ(shape.pages(), 15 + 4);  // 960 tokens, then the page with the rest and the row
  const schedule::StepPlan plan = make_plan(shape, {0, 50});
  std::set<int32_t> own;
  for (size_t i = 0; i < 4; ++i) {
    const std::vector<int32_t> pages = table(plan, i), first = table(plan, 0);
    EXPECT_TRUE(std::equal(pages.begin(), pages.end() - 1, first.begin()));
    EXPECT_TRUE(own.insert(pages.back()).second);
    EXPECT_EQ(std::count(pages.begin(), pages.end() - 1, pages.back()), 0);
  }
}

TEST(StepPlans, MillionTokensBesideManySequencesTakeOneContext) {
  constexpr int64_t kMillion = 1 << 20;
  const StepShape alone{.batch = 1, .context = kMillion - 1};
  const StepShape shared{.batch = 64, .context = kMillion - 1, .shared = true};
  EXPECT_EQ(alone.pages(), kMillion / 64);
  EXPECT_EQ(shared.pages(), kMillion / 64 + 63);
  EXPECT_EQ((StepShape{.batch = 64, .context = kMillion - 1}.pages()), 64 * kMillion / 64);
}

TEST(StepPlans, DraftsLieOnePositionOn) {
  const StepShape shape{.batch = 2, .context = 127, .drafts = 1};
  EXPECT_EQ(shape.pages(), 2 * 3);  // tokens 0 … 128
  const schedule::StepPlan step = make_plan(shape, {0, 50}), draft = plan_draft(step);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(draft.sequences[i].rows.first, 128);
    EXPECT_EQ(draft.sequences[i].rows.kind, kernels::RowKind::draft);
    EXPECT_EQ(draft.sequences[i].rows.slot, step.sequences[i].rows.slot);
    const std::vector<int32_t> pages = table(draft, i), before = table(step, i);
    EXPECT_EQ(pages.size(), 3u);
    EXPECT_TRUE(std::equal(before.begin(), before.end(), pages.begin()));
  }
  EXPECT_TRUE(draft.restores.empty());
}

TEST(StepPlans, SliceBeginsOnAPageAndDecodesBehindItself) {
  const StepShape shape{.context = 1000, .rows = 130, .prefill = true};
  EXPECT_EQ(shape.first(), 960);
  EXPECT_EQ(shape.tokens(), 960 + 130 + 64);
  const schedule::StepPlan plan = make_plan(shape, {7, 9});
  EXPECT_EQ(plan.decode_sequences, 0);
  EXPECT_EQ(plan.samples.size(), 1u);
  EXPECT_EQ(plan.samples[0].position, 1090);
  for (const int64_t n : {0, 1, 63}) {
    const schedule::StepPlan next = plan_behind(plan, n);
    EXPECT_EQ(next.decode_sequences, 1);
    EXPECT_EQ(next.rows(), 1);
    EXPECT_TRUE(next.restores.empty());  // it goes on from the state behind the slice
    EXPECT_EQ(next.sequences[0].rows.first, 1090 + n);
    EXPECT_EQ(next.samples[0].position, 1091 + n);
    EXPECT_EQ(next.sequences[0].pages, (1090 + n) / 64 + 1);
    EXPECT_LE(next.sequences[0].pages, static_cast<int32_t>(next.pages.size()));
  }
}

TEST(StepPlans, SlicesFromTheFirstTokenAreOfTheSamePromptsAndPages) {
  const StepShape shape{.batch = 2, .context = 192, .rows = 128, .prefill = true};
  const schedule::StepPlan slice = make_plan(shape, {7, 900});
  const schedule::StepPlan first = plan_slice(slice, 0, 128), last = plan_slice(slice, 256, 64);
  EXPECT_EQ(first.rows(), 256);
  EXPECT_EQ(last.rows(), 128);
  EXPECT_EQ(first.restores.size(), 2u);
  EXPECT_TRUE(last.restores.empty());  // it goes on from the state behind the slices before
  EXPECT_TRUE(first.samples.empty());
  EXPECT_EQ(last.samples.size(), 2u);
  EXPECT_EQ(last.samples[1].position, 320);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(first.restores[i].slot, slice.sequences[i].rows.slot);
    EXPECT_EQ(last.sequences[i].rows.first, 256);
    EXPECT_EQ(last.sequences[i].rows.row, static_cast<int64_t>(64 * i));
    EXPECT_EQ(table(last, i), table(slice, i));
    EXPECT_EQ(table(first, i).size(), 2u);
    EXPECT_EQ(first.sequences[i].sampled_rows, 0);
    EXPECT_EQ(last.sequences[i].sampled_rows, 1);
    EXPECT_EQ(last.ids[64 * i], slice.ids[128 * i]);
  }
  const schedule::StepPlan next = plan_behind(slice, 0);
  EXPECT_EQ(next.decode_sequences, 2);
  EXPECT_EQ(next.sequences[1].rows.row, 1);
  EXPECT_EQ(next.sequences[1].rows.first, 320);
}

}  // namespace
}  // namespace godwit::bench
