#include "bench/step_bench.h"

#include <gtest/gtest.h>

#include "bench/shape.h"
#include "bench/step_work.h"
#include "model/glm5_next/dims.h"

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

TEST(StepBench, PromptsTogetherAndFromTheirFirstToken) {
  StepCase c = tiny();
  c.prefill = 70;
  c.batches = {3};
  c.whole = true;
  const auto results = run_step_bench(c);
  ASSERT_TRUE(results.ok()) << results.error().message;
  const StepResult& r = results->front();
  expect_sound(r);
  EXPECT_GT(r.behind.steady_us, 0);
  EXPECT_GT(r.whole_us, r.parts[0].us_min);                       // it is the last of several slices
  EXPECT_EQ(r.whole_tokens, 3 * (c.contexts[0] / 64 * 64 + 70));  // slices begin on pages
  EXPECT_NE(as_table(c, *results).find("from the first token"), std::string::npos);
  EXPECT_EQ(as_json(c, *results).find("cases")->as_array()[0].find("whole_us")->as_double(), r.whole_us);
}

TEST(StepBench, DraftsThatSelectAndThoseBehindThem) {
  StepCase c = tiny();
  c.draft = true;
  c.batches = {3};
  c.contexts = {259, 900};  // a pool is completed between the two drafts of the first
  const auto results = run_step_bench(c);
  ASSERT_TRUE(results.ok()) << results.error().message;
  ASSERT_EQ(results->size(), 2u);
  for (const StepResult& r : *results) {
    expect_sound(r);
    ASSERT_EQ(r.parts.size(), 2u);
    EXPECT_EQ(r.rows, 1);
    // The first also has the indexer's matrices and keys to read.
    EXPECT_GT(gigabytes(r, "step"), 0);
    EXPECT_GT(gigabytes(r, "first"), gigabytes(r, "step"));
    EXPECT_GT(r.distinct_experts, 0);
  }
  EXPECT_GT(gigabytes((*results)[1], "first") - gigabytes((*results)[0], "first"),
            gigabytes((*results)[1], "step") - gigabytes((*results)[0], "step"));
  EXPECT_NE(as_table(c, *results).find("drafts/s"), std::string::npos);
  EXPECT_EQ(as_json(c, *results).find("kind")->as_string(), "draft");
}

// The roof of a draft of the real model at TP4: the arithmetic of kernels spec §3.11, without its embedding
// row.
TEST(StepWork, ADraftOfTheRealModelReadsWhatTheSpecSays) {
  const auto config = read_shape("glm-5.3-flash");
  ASSERT_TRUE(config.ok());
  const auto shards = ShardPlan::make(config->text, 4, 1);
  const kernels::Dims d = model::rank_dims(config->text, *shards);
  const auto matrix = [](int64_t out, int64_t in, DType dtype) {
    static const float scale = 0;
    static std::byte value{};
    Weight w{make_view(&value, dtype, out, in)};
    if (dtype == DType::f8_e4m3) w.scales = &scale;
    return w;
  };
  const auto codes = [&](int64_t out, int64_t in) { return matrix(out, in, DType::f8_e4m3); };
  const auto plain = [&](int64_t out, int64_t in) { return matrix(out, in, DType::bf16); };
  const auto cpu = kernels::make_cpu_ops(1);
  model::ModelWeights weights(cpu->memory());
  weights.lm_head = plain(shards->vocabulary(0).size(), d.hidden);
  model::DraftWeights& w = weights.draft.emplace();
  w.eh_proj = plain(d.hidden, 2 * d.hidden);
  w.layer.kind = {LayerAttention::dsa, LayerIndexer::full, LayerMlp::sparse};
  model::DsaWeights& a = w.layer.dsa;
  a.q_a = codes(config->text.q_lora_rank, d.hidden);
  a.kv_a = codes(d.latent, d.hidden);
  a.q_b = codes(d.mla_heads * d.nope, config->text.q_lora_rank);
  a.o = codes(d.hidden, d.mla_heads * d.value);
  a.absorb_k = plain(d.mla_heads * d.latent, d.nope).data;
  a.absorb_v = plain(d.mla_heads * d.value, d.latent).data;
  a.wq_b = plain(d.index_heads * d.index_dim, config->text.q_lora_rank);
  a.wk = plain(d.index_dim, d.hidden);
  a.gate = plain(d.index_dim, d.hidden);
  a.weights_proj = plain(d.index_heads, d.hidden);
  w.layer.moe.router = plain(d.experts, d.hidden);
  w.layer.moe.dtype = DType::f8_e4m3;
  w.layer.moe.inner = d.expert_inner;
  w.layer.moe.shared = {codes(d.shared_inner, d.hidden), codes(d.shared_inner, d.hidden),
                        codes(d.hidden, d.shared_inner)};
  const StepSize size{1, 1, 8192, 1, 8, 8, DType::bf16};
  const StepPart step = draft_work(weights, d, size, false), first = draft_work(weights, d, size, true);
  EXPECT_NEAR(first.gigabytes, 0.500, 0.01);
  EXPECT_NEAR(first.gigabytes - step.gigabytes, 0.0149 + 0.0005, 0.0005);  // index front, and 2,048 keys
  EXPECT_NEAR(first.roof_us, 116, 3);
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
  c.shared_context = true;
  EXPECT_EQ(run_step_bench(c).error().field, "--prefill");
  c.shared_context = false;
  c.batches = {1, 257};
  EXPECT_EQ(run_step_bench(c).error().field, "--prefill");
  c.batches = {1};
  c.draft = true;
  EXPECT_EQ(run_step_bench(c).error().field, "--draft");
  c.prefill = 0;
  c.draft = false;
  c.whole = true;
  EXPECT_EQ(run_step_bench(c).error().field, "--whole");
  c.whole = false;
  c.draft = true;
  c.rows = 6;
  EXPECT_EQ(run_step_bench(c).error().field, "--draft");
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
