#include "bench/step_bench.h"

#include <gtest/gtest.h>

namespace godwit::bench {
namespace {

StepCase tiny() {
  StepCase c;
  c.shape = std::string(GODWIT_SOURCE_DIR) + "/models/tiny-glm5next/config.json";
  c.device = "cpu";
  c.tp = 1;
  c.contexts = {200};
  c.rounds = 2;
  return c;
}

double gigabytes(const StepResult& r, const std::string& part) {
  for (const StepPart& p : r.parts)
    if (p.name == part) return p.gigabytes;
  return 0;
}

void expect_sound(const StepResult& r) {
  EXPECT_TRUE(r.trusted());  // finite, and what an untimed step computes
  for (const StepPart& p : r.parts) {
    EXPECT_GT(p.us_min, 0) << p.name;
    EXPECT_LE(p.us_min, p.us) << p.name;
    EXPECT_LE(p.us, p.us_max) << p.name;
    EXPECT_GE(p.a_a_percent, 0) << p.name;
  }
}

TEST(StepBench, CachesOfEveryFormat) {
  StepCase c = tiny();
  c.batches = {3};
  StepResult of[2];
  for (const size_t i : {0, 1}) {
    c.kv = i == 0 ? "bf16" : "fp8";
    const auto results = run_step_bench(c);
    ASSERT_TRUE(results.ok()) << results.error().message;
    of[i] = results->front();
    EXPECT_EQ(of[i].kv, c.kv);
    expect_sound(of[i]);
  }
  EXPECT_LT(of[1].memory.token_bytes, of[0].memory.token_bytes);
  EXPECT_LT(gigabytes(of[1], "dsa"), gigabytes(of[0], "dsa"));
}

TEST(StepBench, SharedContextComputesAStepAndSaysSo) {
  StepCase c = tiny();
  c.batches = {6};
  c.shared_context = true;
  const auto results = run_step_bench(c);
  ASSERT_TRUE(results.ok()) << results.error().message;
  const StepResult& r = results->front();
  expect_sound(r);
  EXPECT_EQ(r.kv, "f32");
  EXPECT_EQ(r.memory.tokens, (1 + 3 + 6) * 64);  // page 0, 192 tokens of all, a page of each
  EXPECT_NE(as_table(c, *results).find("same pages of context"), std::string::npos);
  EXPECT_TRUE(as_json(c, *results).find("shared_context")->as_bool());
}

TEST(StepBench, SliceWithContextBeforeItAndDecodeStepsBehind) {
  StepCase c = tiny();
  c.prefill = 70;
  const auto results = run_step_bench(c);
  ASSERT_TRUE(results.ok()) << results.error().message;
  const StepResult& r = results->front();
  expect_sound(r);
  EXPECT_GT(r.behind.first_us, 0);
  EXPECT_GT(r.behind.steady_us, 0);
  const std::string table = as_table(c, *results);
  EXPECT_NE(table.find("first decode step"), std::string::npos) << table;
  const Json json = as_json(c, *results);
  EXPECT_NE(json.find("cases")->as_array()[0].find("behind"), nullptr);
}

TEST(StepBench, ASliceThatAllocatesIsNotTrusted) {
  StepResult r;
  r.same_logits = true;
  r.behind.free_before = r.behind.free_after = 1000;
  EXPECT_TRUE(r.trusted());
  r.behind.free_after = 999;
  EXPECT_FALSE(r.trusted());
}

TEST(StepBench, RefusesWhatItCannotTime) {
  StepCase c = tiny();
  c.prefill = 64;
  c.batches = {2};
  EXPECT_EQ(run_step_bench(c).error().field, "--prefill");
  c = tiny();
  c.contexts = {1 << 20};
  EXPECT_EQ(run_step_bench(c).error().field, "--context");
  c.contexts = {-1};
  EXPECT_EQ(run_step_bench(c).error().field, "--context");
  c = tiny();
  c.batches = {0};
  EXPECT_EQ(run_step_bench(c).error().field, "--batch");
}

TEST(StepMemory, SaysWhatDoesNotFitBeforeItIsAllocated) {
  StepMemory m;
  m.tokens = int64_t{8} << 20;
  m.token_bytes = 11968;
  m.scratch = 2'000'000'000;
  EXPECT_EQ(refusal(m, m.total()), "");
  EXPECT_EQ(refusal(m, 0), "");  // the host's
  const std::string why = refusal(m, m.total() - 1);
  for (const char* part :
       {"102.4 GB", "8388608 cached tokens of 11968 bytes", "100.4 GB", "scratch 2.0", "--kv fp8"})
    EXPECT_NE(why.find(part), std::string::npos) << part << " in " << why;
}

}  // namespace
}  // namespace godwit::bench
