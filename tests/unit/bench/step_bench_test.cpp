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

TEST(StepBench, CachesOfEveryFormat) {
  double dsa = 1e9;
  for (const char* kv : {"f32", "bf16", "fp8"}) {
    StepCase c = tiny();
    c.kv = kv;
    c.batches = {3};
    const auto results = run_step_bench(c);
    ASSERT_TRUE(results.ok()) << results.error().message;
    const StepResult& r = results->front();
    EXPECT_TRUE(r.trusted()) << kv;  // finite, and what an untimed step computes
    EXPECT_EQ(r.kv, kv);
    EXPECT_LT(gigabytes(r, "dsa"), dsa) << kv;
    dsa = gigabytes(r, "dsa");
    for (const StepPart& p : r.parts) {
      EXPECT_GT(p.us_min, 0) << p.name;
      EXPECT_LE(p.us_min, p.us) << p.name;
      EXPECT_LE(p.us, p.us_max) << p.name;
      EXPECT_GE(p.a_a_percent, 0) << p.name;
    }
  }
}

TEST(StepBench, SharedContextComputesAStepAndSaysSo) {
  StepCase c = tiny();
  c.batches = {6};
  const auto own = run_step_bench(c);
  c.shared_context = true;
  const auto shared = run_step_bench(c);
  ASSERT_TRUE(own.ok() && shared.ok());
  EXPECT_TRUE(shared->front().trusted());
  EXPECT_LT(shared->front().memory.tokens, own->front().memory.tokens);
  EXPECT_EQ(gigabytes(shared->front(), "dsa"), gigabytes(own->front(), "dsa"));
  EXPECT_NE(as_table(c, *shared).find("same pages of context"), std::string::npos);
  EXPECT_TRUE(as_json(c, *shared).find("shared_context")->as_bool());
}

TEST(StepBench, SliceWithContextBeforeItAndDecodeStepsBehind) {
  StepCase c = tiny();
  c.prefill = 70;
  const auto results = run_step_bench(c);
  ASSERT_TRUE(results.ok()) << results.error().message;
  const StepResult& r = results->front();
  EXPECT_TRUE(r.trusted());
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
