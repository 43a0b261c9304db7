// The ledger of the real configuration against the numbers of glm5_next spec §15, and of the small models
// against what an engine really placed.
#include "engine/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "engine/engine.h"

namespace godwit::engine {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kMillion = 1'048'576;

LedgerModel real() {
  std::ifstream file(std::string(GODWIT_SOURCE_DIR) + "/tests/data/glm-5.3-flash-config.json");
  std::stringstream text;
  text << file.rdbuf();
  auto config = parse_model_config(text.str(), "");
  EXPECT_TRUE(config.ok()) << config.error().message;
  return {*config, make_inventory(*config), Form::fp8};
}

LedgerRequest device(int64_t gpus, DType kv = DType::bf16, int64_t draft = 5) {
  LedgerRequest r;
  r.tp = gpus;
  r.kv = kv;
  r.draft = draft;
  r.vision = true;
  r.host_apart = true;
  r.reserve = 9 * kGiB / 2;
  return r;
}

Ledger make(const LedgerModel& model, const LedgerRequest& request) {
  auto ledger = make_ledger(model, request, nullptr);
  EXPECT_TRUE(ledger.ok()) << ledger.error().message;
  return ledger.ok() ? std::move(*ledger) : Ledger();
}

TEST(Ledger, ATokenOfTheRealModelTakesWhatTheSpecSays) {
  const LedgerModel model = real();
  EXPECT_EQ(make(model, device(4)).token_bytes, 13'056);
  EXPECT_EQ(make(model, device(4, DType::f8_e4m3)).token_bytes, 6'732);
  EXPECT_EQ(make(model, device(4, DType::bf16, 0)).token_bytes, 11'264 + 704);
  EXPECT_EQ(make(model, device(4, DType::f8_e4m3, 0)).token_bytes, 5'808 + 363);
  // Latents and index are replicated (spec §17): the number of ranks changes nothing.
  EXPECT_EQ(make(model, device(8)).token_bytes, 13'056);
}

TEST(Ledger, OneRequestOfAMillionTokensAsInTheSpec) {
  const LedgerModel model = real();
  LedgerRequest r = device(4);
  r.max_sequences = 1;
  r.cache_tokens = kMillion;
  const auto without_reserved = [](const Ledger& l, std::string_view line) {
    return l.bytes_of(line) / l.model.pages * (l.model.pages - 1);
  };
  Ledger l = make(model, r);
  EXPECT_EQ(l.model.pages - 1, kMillion / 64);
  EXPECT_EQ(without_reserved(l, "latent pages"), 12'884'901'888);
  EXPECT_EQ(without_reserved(l, "index pages"), 805'306'368);
  EXPECT_EQ(l.layout.committed_bytes, 36'904'960) << "KDA state and conv window at TP4";
  r.draft = 0;
  l = make(model, r);
  EXPECT_EQ(without_reserved(l, "latent pages"), 11'811'160'064);
  EXPECT_EQ(without_reserved(l, "index pages"), 738'197'504);
  r.kv = DType::f8_e4m3;
  l = make(model, r);
  EXPECT_EQ(without_reserved(l, "latent pages"), 5'808 * kMillion);
  EXPECT_EQ(without_reserved(l, "index pages"), 380'633'088);
  EXPECT_EQ(make(model, device(1)).layout.committed_bytes, 147'619'840);
}

TEST(Ledger, WeightsOfARankAsInTheSpec) {
  struct Row {
    int64_t tp, main, draft, total;
  };
  // The table counts the norms inside the draft block's attention (q_a, kv_a and k_norm, bf16) as main
  // weights.
  constexpr int64_t kDraftAttentionNorms = 2 * (1536 + 512 + 2 * 128);
  const LedgerModel model = real();
  for (const Row& row : {Row{1, 319'706'123'000, 7'493'394'560, 328'326'771'576},
                         Row{2, 160'102'417'912, 3'793'119'360, 165'022'791'288},
                         Row{4, 80'300'565'368, 1'942'981'760, 83'370'801'144},
                         Row{8, 40'399'639'096, 1'017'912'960, 42'544'806'072}}) {
    const Ledger l = make(model, device(row.tp));
    EXPECT_EQ(l.bytes_of("weights"), row.main - kDraftAttentionNorms) << row.tp;
    EXPECT_EQ(l.bytes_of("weights draft"), row.draft + kDraftAttentionNorms) << row.tp;
    EXPECT_EQ(l.bytes_of("weights vision"), 1'127'254'016) << row.tp;
    EXPECT_EQ(l.bytes_of("weights") + l.bytes_of("weights draft") + l.bytes_of("weights vision"), row.total);
    EXPECT_LT(l.bytes_of("weights widened"), row.main / 1000);
  }
}

TEST(Ledger, ABudgetIsFilledAndNeverExceeded) {
  const LedgerModel model = real();
  for (const DType kv : {DType::bf16, DType::f8_e4m3}) {
    LedgerRequest r = device(4, kv);
    r.memory = 139 * kGiB;
    const Ledger l = make(model, r);
    EXPECT_EQ(l.shortfall, 0);
    EXPECT_LE(l.total(), r.memory);
    EXPECT_GT(l.total(), r.memory - kGiB / 8) << "the rest is too small for a snapshot or a page";
    EXPECT_GE(l.sequences_at(kMillion), 1);
    EXPECT_GE(l.model.snapshots, 16);
  }
}

TEST(Ledger, ATooSmallBudgetSaysWhatIsMissingAndWhatHelps) {
  const LedgerModel model = real();
  LedgerRequest r = device(4);
  r.memory = 100'000'000'000;
  r.context = kMillion;
  const Ledger l = make(model, r);
  EXPECT_GT(l.shortfall, 0);
  EXPECT_EQ(l.sequences_at(1024), 0);
  const std::vector<std::string> changes = remedies(model, r, nullptr);
  ASSERT_FALSE(changes.empty());
  EXPECT_THAT(changes, ::testing::Contains("--gpus 8"));
  // Each remedy is true, and the budget raised by the shortfall fits.
  LedgerRequest more = r;
  more.memory += l.shortfall;
  EXPECT_EQ(make(model, more).shortfall, 0);
  more.memory -= 1;
  EXPECT_GT(make(model, more).shortfall, 0);
}

TEST(Ledger, AContextNobodyAskedForShrinksAndIsReported) {
  const LedgerModel model = real();
  LedgerRequest r = device(4);
  r.memory = 102'000'000'000;
  const Ledger l = make(model, r);
  EXPECT_EQ(l.shortfall, 0);
  ASSERT_EQ(l.adjustments.size(), 1u);
  EXPECT_EQ(l.adjustments[0].setting, "context");
  EXPECT_EQ(l.adjustments[0].effective, l.schedule.context);
  EXPECT_LT(l.schedule.context, kMillion);
  LedgerRequest longer = r;
  longer.context = l.schedule.context + 64;
  EXPECT_GT(make(model, longer).shortfall, 0) << "it was not the longest";
}

TEST(Ledger, DraftingIsPriced) {
  const LedgerModel model = real();
  const Ledger with = make(model, device(4)), without = make(model, device(4, DType::bf16, 0));
  EXPECT_EQ(with.model.limits.sampled_rows, 6 * without.model.limits.sampled_rows);
  EXPECT_EQ(with.bytes_of("pending rows"), 6 * without.bytes_of("pending rows"));
  EXPECT_GT(with.bytes_of("index ring"), without.bytes_of("index ring"));
  LedgerRequest r = device(4);
  LedgerModel bare = model;
  bare.config.text.num_nextn_predict_layers = 0;
  EXPECT_FALSE(make_ledger(bare, r, nullptr).ok());
}

// A narrower cache is offered where the backend holds it, and nothing is where nobody knows.
TEST(Ledger, ANarrowerCacheIsARemedyWhereTheBackendHoldsIt) {
  const LedgerModel model = real();
  const auto cpu = kernels::make_cpu_ops(1);
  LedgerRequest r;
  r.context = kMillion;
  const auto needed = [&](DType kv) {
    LedgerRequest one = r;
    one.kv = kv;
    one.memory = 1;
    return 1 + make_ledger(model, one, cpu.get())->shortfall;
  };
  r.kv = DType::f32;
  r.memory = needed(DType::bf16);
  EXPECT_THAT(remedies(model, r, cpu.get()), ::testing::Contains("--kv bf16"));
  r.memory = needed(DType::f8_e4m3);
  EXPECT_THAT(remedies(model, r, cpu.get()), ::testing::Contains("--kv fp8"));
  r.kv = DType::bf16;
  EXPECT_THAT(remedies(model, r, cpu.get()), ::testing::Contains("--kv fp8"));
  EXPECT_THAT(remedies(model, r, nullptr), ::testing::Not(::testing::Contains("--kv fp8")));
}

// What a GPU takes beside our buffers has lines of its own, and nothing of it is priced on a CPU.
TEST(Ledger, PricesWhatTheLibrariesOfADeviceTake) {
  const LedgerModel model = real();
  LedgerRequest r = device(4);
  Ledger l = make(model, r);
  EXPECT_EQ(l.bytes_of("driver context"), kDriverContext);
  EXPECT_EQ(l.bytes_of("cuBLASLt"), kLibraryBytes);
  const auto recordings = static_cast<int64_t>(model::recorded_rows(l.model.limits).size());
  EXPECT_EQ(model::recorded_rows(l.model.limits).back(), 64);
  EXPECT_EQ(recordings, 16);
  EXPECT_EQ(l.bytes_of("recorded steps"), recordings * 45 * 17 * kGraphNodeBytes);
  for (const LedgerLine& line : l.lines) {
    const bool guessed =
        line.name == "cuBLASLt" || line.name == "recorded steps" || line.name == "driver context";
    EXPECT_EQ(line.detail.find("an estimate") != std::string::npos, guessed || line.name == "runtime reserve")
        << line.name;
  }
  r.context_bytes = 700 << 20;
  l = make(model, r);
  EXPECT_EQ(l.bytes_of("driver context"), 700 << 20);
  const auto cpu = kernels::make_cpu_ops(1);
  const auto on_cpu = make_ledger(model, LedgerRequest(), cpu.get());
  ASSERT_TRUE(on_cpu.ok());
  for (const char* line : {"driver context", "cuBLASLt", "recorded steps", "slab ends"})
    EXPECT_EQ(on_cpu->bytes_of(line), 0) << line;
}

TEST(Ledger, ADeviceThatHoldsMoreThanPricedIsReportedInWords) {
  Ledger l;
  l.lines = {{"weights", 90 * kGiB, "", true},
             {"step buffers", 9 * kGiB, "", false},
             {"cuBLASLt", 10 * kGiB, "", true},
             {"driver context", kGiB, "", true}};
  EXPECT_EQ(broken_promise(l, 140 * kGiB, 40 * kGiB), "");
  EXPECT_EQ(broken_promise(l, 140 * kGiB, 50 * kGiB), "");
  EXPECT_EQ(broken_promise(l, 140 * kGiB, 38 * kGiB), "") << "2 %";
  const std::string words = broken_promise(l, 140 * kGiB, 35 * kGiB);
  for (const char* part : {"40.00 GiB of the device would be free, and 35.00 GiB are",
                           "took 105.00 GiB where 100.00", "--gpu-memory 5.00 GiB less"})
    EXPECT_NE(words.find(part), std::string::npos) << words;
}

class PlacedLedger : public ::testing::TestWithParam<std::tuple<std::string, DType>> {};

TEST_P(PlacedLedger, IsWhatTheEnginePlaces) {
  EngineOptions options;
  const auto& [model, format] = GetParam();
  const bool twin = model.ends_with("-fp8");
  options.model_dir = std::string(twin ? GODWIT_BINARY_DIR : GODWIT_SOURCE_DIR) + "/models/" + model;
  options.kv = format;
  options.threads = 1;
  options.context = 1000;
  options.max_sequences = 5;
  options.prefill_tokens = 100;
  options.cache_tokens = 4096;
  const auto engine = Engine::start(options, std::vector<bool>(1 << 18, true));
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const Info& info = (*engine)->info();
  int64_t weights = 0, cache = 0;
  for (const LedgerLine& line : info.ledger) {
    if (line.name.starts_with("weights")) weights += line.bytes;
    for (const char* name : {"latent pages", "index pages", "state", "conv window", "pending rows",
                             "index ring", "snapshots", "token history"})
      if (line.name == name) cache += line.bytes;
  }
  EXPECT_EQ(weights, info.weight_bytes);
  EXPECT_EQ(cache, info.cache_bytes);
  EXPECT_EQ(info.kv_dtype, kernels::cache_format_name(format));
  ASSERT_EQ(info.adjustments.size(), 1u);
  EXPECT_EQ(info.adjustments[0].setting, "prefill-tokens");
  EXPECT_EQ(info.adjustments[0].effective, 128);
  EXPECT_EQ(info.prefill_tokens, 128);
}

// No engine drafts, but a model whose options ask for it places what its ledger says.
TEST(Ledger, IsWhatADraftingModelPlaces) {
  for (const std::string model : {"tiny-glm5next", "tiny-glm5next-fp8"}) {
    SCOPED_TRACE(model);
    const bool twin = model.ends_with("-fp8");
    const std::string dir = std::string(twin ? GODWIT_BINARY_DIR : GODWIT_SOURCE_DIR) + "/models/" + model;
    const auto checkpoint = Checkpoint::open(dir);
    const auto config = read_model_config(dir);
    ASSERT_TRUE(checkpoint.ok() && config.ok());
    LedgerRequest r;
    r.context = 500;
    r.max_sequences = 3;
    r.cache_tokens = 1024;
    int64_t placed[2], priced[2], activations[2];
    for (const int64_t draft : {0, 5}) {
      const size_t i = draft > 0 ? 1 : 0;
      r.draft = draft;
      const auto ops = kernels::make_cpu_ops(1);
      const LedgerModel priced_model{*config, found_inventory(*checkpoint, make_inventory(*config)),
                                     Form::fp8};
      const auto ledger = make_ledger(priced_model, r, ops.get());
      const auto shards = ShardPlan::make(config->text, 1, 1);
      comm::Solo comm;
      const auto loaded = model::Model::load(*checkpoint, *config, *shards, *ops, comm, ledger->model);
      ASSERT_TRUE(loaded.ok()) << loaded.error().message;
      placed[i] = (*loaded)->weight_bytes() + (*loaded)->state_bytes();
      if (draft > 0) placed[i] += 4 * ledger->model.slots;  // the token drafted last
      priced[i] = 0;
      for (const char* line :
           {"weights", "weights widened", "weights draft", "latent pages", "index pages", "state",
            "conv window", "pending rows", "index ring", "snapshots", "token history"})
        priced[i] += ledger->bytes_of(line);
      EXPECT_EQ(placed[i], priced[i]) << draft;
      EXPECT_EQ(ledger->bytes_of("weights draft") > 0, draft > 0);
      activations[i] = ledger->bytes_of("activations");
      EXPECT_EQ(model::price(config->text, *shards, ledger->model, *ops).workspace, activations[i]);
    }
    EXPECT_GT(activations[1], activations[0]);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PlacedLedger,
                         ::testing::Combine(::testing::Values("random-glm5next", "tiny-glm5next",
                                                              "tiny-glm5next-fp8"),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f8_e4m3)),
                         [](const auto& i) {
                           std::string name = std::get<0>(i.param) + "_kv_";
                           name += kernels::cache_format_name(std::get<1>(i.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace godwit::engine
