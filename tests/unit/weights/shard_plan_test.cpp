#include "weights/shard_plan.h"

#include <gtest/gtest.h>

#include <utility>

#include "weights_test_support.h"

namespace godwit {
namespace {

// As in inventory_test: the spec's tables count these norms of the draft block with the main model. They are
// replicated, so it is the same number on every rank.
constexpr int64_t kDraftNormsUnderMain = (1536 + 512 + 256) * 2;

ShardPlan plan_of(const TextConfig& text, int64_t tp, int64_t ep) {
  Result<ShardPlan> plan = ShardPlan::make(text, tp, ep);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  return std::move(plan).value();
}

TEST(ShardPlan, GivesTheBytesPerRankOfTheSpec) {
  const struct {
    int64_t tp, main, nextn, total;
  } kRows[] = {
      {1, 319'706'123'000, 7'493'394'560, 328'326'771'576},
      {2, 160'102'417'912, 3'793'119'360, 165'022'791'288},
      {4, 80'300'565'368, 1'942'981'760, 83'370'801'144},
      {8, 40'399'639'096, 1'017'912'960, 42'544'806'072},
  };
  const ModelConfig config = released_config();
  const std::vector<TensorSpec> inventory = make_inventory(config);
  for (const auto& row : kRows) {
    for (int64_t ep : {int64_t{1}, row.tp}) {
      const ShardPlan plan = plan_of(config.text, row.tp, ep);
      EXPECT_TRUE(check_fp8_cuts(plan, inventory).ok());
      for (int64_t rank = 0; rank < row.tp; ++rank) {
        const TotalsTable table = rank_totals(plan, inventory, Form::fp8, rank);
        EXPECT_EQ(table.main_total().bytes() + kDraftNormsUnderMain, row.main) << row.tp << " ep " << ep;
        EXPECT_EQ(table.nextn_total().bytes() - kDraftNormsUnderMain, row.nextn) << row.tp << " ep " << ep;
        EXPECT_EQ(table.vision_total().bytes(), 1'127'254'016);
        EXPECT_EQ(table.all().bytes(), row.total) << row.tp << " ep " << ep;
      }
    }
  }
}

TEST(ShardPlan, GivesTheComponentsOfFourRanks) {
  const ModelConfig config = released_config();
  const ShardPlan plan = plan_of(config.text, 4, 1);
  const TotalsTable table = rank_totals(plan, make_inventory(config), Form::fp8, 3);
  auto bytes = [&](Component c) { return table.main[static_cast<size_t>(c)].weight_bytes; };
  EXPECT_EQ(bytes(Component::experts), 76'101'451'776);
  EXPECT_EQ(table.main[static_cast<size_t>(Component::experts)].scale_bytes, 18'579'456);
  EXPECT_EQ(bytes(Component::kda), 2'395'064'448);
  EXPECT_EQ(bytes(Component::mla), 346'030'080);
  EXPECT_EQ(bytes(Component::kv_b), 92'274'688);
  EXPECT_EQ(bytes(Component::indexer), 164'375'552);
  EXPECT_EQ(bytes(Component::dense), 113'246'208);
  EXPECT_EQ(bytes(Component::shared_experts), 264'241'152);
  EXPECT_EQ(bytes(Component::router), 99'138'816);
  EXPECT_EQ(bytes(Component::mhc), 70'788'600);
  EXPECT_EQ(bytes(Component::embed), 317'194'240);
  EXPECT_EQ(bytes(Component::lm_head), 317'194'240);
}

// Every element of a cut tensor lies on exactly one rank; of a replicated one on all.
TEST(ShardPlan, CoversEveryElement) {
  ModelConfig config = small_config("random-glm5next");
  config.text.hidden_size = config.vision.out_hidden_size = 8;
  config.text.num_attention_heads = config.text.linear_num_heads = 4;
  config.text.n_routed_experts = 8;
  config.text.vocab_size = 353;  // does not divide: ranks differ by a row
  const std::vector<TensorSpec> inventory = make_inventory(config);
  const std::pair<int64_t, int64_t> kPlans[] = {{1, 1}, {2, 1}, {2, 2}, {4, 1}, {4, 2}, {4, 4}};
  for (auto [tp, ep] : kPlans) {
    const ShardPlan plan = plan_of(config.text, tp, ep);
    for (const TensorSpec& tensor : inventory) {
      std::vector<int> holders(static_cast<size_t>(tensor.elements()), 0);
      for (int64_t rank = 0; rank < tp; ++rank) {
        const Slice slice = plan.slice(tensor, rank);
        for (int64_t r = slice.rows.begin; r < slice.rows.end; ++r) {
          for (int64_t c = slice.columns.begin; c < slice.columns.end; ++c) {
            ++holders[static_cast<size_t>(r * tensor.columns() + c)];
          }
        }
      }
      const bool is_cut = tensor.split != Split::replicated || tensor.expert >= 0;
      const int expected = is_cut ? 1 : static_cast<int>(tp);
      for (int count : holders) ASSERT_EQ(count, expected) << tensor.name << " tp " << tp << " ep " << ep;
    }
  }
}

TEST(ShardPlan, GroupsExperts) {
  const ModelConfig config = released_config();
  const ShardPlan plan = plan_of(config.text, 8, 4);
  EXPECT_EQ(plan.expert_ranks(), 2);
  const TensorSpec* gate = nullptr;
  const std::vector<TensorSpec> inventory = make_inventory(config);
  for (const TensorSpec& tensor : inventory) {
    if (tensor.name == "model.language_model.layers.3.mlp.experts.100.gate_proj.weight") gate = &tensor;
  }
  ASSERT_NE(gate, nullptr);
  for (int64_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(plan.experts(rank).begin, rank / 2 * 72);
    EXPECT_EQ(plan.experts(rank).size(), 72);
    const Slice slice = plan.slice(*gate, rank);
    EXPECT_EQ(slice.empty(), rank / 2 != 1) << rank;
    if (slice.empty()) continue;
    EXPECT_EQ(slice.rows.begin, rank % 2 * 1024);
    EXPECT_EQ(slice.rows.size(), 1024);
    EXPECT_EQ(slice.columns.size(), 4096);
  }
}

TEST(ShardPlan, RefusesWhatDoesNotDivide) {
  const ModelConfig tiny = small_config("tiny-glm5next");
  const struct {
    int64_t tp, ep;
    const char* part;
  } kCases[] = {
      {0, 1, "--tp is 0"},         {65, 1, "--tp is 65"},       {4, 3, "--ep is 3"}, {4, 8, "--ep is 8"},
      {3, 1, "4 attention heads"}, {8, 1, "4 attention heads"}, {4, 0, "--ep is 0"},
  };
  for (const auto& c : kCases) {
    Result<ShardPlan> plan = ShardPlan::make(tiny.text, c.tp, c.ep);
    ASSERT_FALSE(plan.ok()) << c.part;
    EXPECT_EQ(plan.error().code, ErrorCode::usage);
    EXPECT_NE(plan.error().message.find(c.part), std::string::npos) << plan.error().message;
  }
  ModelConfig odd = tiny;
  odd.text.n_routed_experts = 10;
  EXPECT_NE(ShardPlan::make(odd.text, 4, 4).error().message.find("10 routed experts"), std::string::npos);
}

TEST(ShardPlan, RefusesCutsThroughFp8Blocks) {
  const ModelConfig odd = small_config("random-glm5next");
  const std::vector<TensorSpec> inventory = make_inventory(odd);
  EXPECT_TRUE(check_fp8_cuts(plan_of(odd.text, 1, 1), inventory).ok());
  ModelConfig wider = odd;
  wider.text.intermediate_size = 114;
  const ShardPlan plan = plan_of(wider.text, 3, 1);
  Result<void> cuts = check_fp8_cuts(plan, make_inventory(wider));
  ASSERT_FALSE(cuts.ok());  // q_b_proj: rank 2 of 3 would hold rows 96 to 144, across the edge at 128
  EXPECT_NE(cuts.error().message.find("q_b_proj"), std::string::npos) << cuts.error().message;
  EXPECT_NE(cuts.error().message.find("rows 96 to 144"), std::string::npos) << cuts.error().message;
}

}  // namespace
}  // namespace godwit
