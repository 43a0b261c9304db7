// Weights read straight to a device are those that a backend of the host finds in the mapping.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "far_memory.h"
#include "model/glm5_next/weights.h"
#include "weights/inventory.h"

namespace godwit::model {
namespace {

// Every weight of a model, by name.
std::vector<std::pair<std::string, Weight>> all_weights(const ModelWeights& m) {
  std::vector<std::pair<std::string, Weight>> all = {{"embed", m.embed}, {"lm_head", m.lm_head}};
  const auto add = [&](const std::string& name, const Weight& w) {
    if (!w.empty()) all.emplace_back(name, w);
  };
  if (m.draft) add("eh_proj", m.draft->eh_proj);
  for (size_t i = 0; i < m.layers.size() + (m.draft ? 1 : 0); ++i) {
    const LayerWeights& l = i < m.layers.size() ? m.layers[i] : m.draft->layer;
    const std::string p = "layer " + std::to_string(i) + " ";
    add(p + "attention_hc", {l.attention_hc.fn});
    add(p + "ffn_hc", {l.ffn_hc.fn});
    for (const Weight* w :
         {&l.kda.q, &l.kda.k, &l.kda.v, &l.kda.f_a, &l.kda.g_a, &l.kda.f_b, &l.kda.g_b, &l.kda.b, &l.kda.o})
      add(p + "kda", *w);
    for (const Weight* w : {&l.dsa.q_a, &l.dsa.kv_a, &l.dsa.q_b, &l.dsa.o, &l.dsa.wq_b, &l.dsa.wk,
                            &l.dsa.gate, &l.dsa.weights_proj})
      add(p + "dsa", *w);
    add(p + "absorb_k", {l.dsa.absorb_k});
    add(p + "absorb_v", {l.dsa.absorb_v});
    for (const FfnWeights* f : {&l.dense, &l.moe.shared})
      for (const Weight* w : {&f->gate, &f->up, &f->down}) add(p + "ffn", *w);
    add(p + "router", l.moe.router);
    for (int32_t e = 0; e < l.moe.expert_count; ++e)
      for (const Weight* w : {&l.moe.experts[e].gate, &l.moe.experts[e].up, &l.moe.experts[e].down})
        add(p + "expert " + std::to_string(e), *w);
  }
  return all;
}

void expect_same(const std::string& name, const Weight& near, const Weight& far) {
  ASSERT_EQ(far.data.dtype, near.data.dtype) << name;
  ASSERT_EQ(far.out(), near.out()) << name;
  ASSERT_EQ(far.in(), near.in()) << name;
  EXPECT_EQ(far.data.stride, far.in()) << name;
  const auto row = static_cast<size_t>(near.in() * size_of(near.data.dtype));
  for (int64_t r = 0; r < near.out(); ++r)
    ASSERT_EQ(std::memcmp(far.data.row_range(r, 1).data, near.data.row_range(r, 1).data, row), 0)
        << name << " row " << r;
  ASSERT_EQ(far.scales == nullptr, near.scales == nullptr) << name;
  if (!near.scales) return;
  const int64_t blocks = (near.in() + kFp8Block - 1) / kFp8Block;
  for (int64_t r = 0; r < (near.out() + kFp8Block - 1) / kFp8Block; ++r)
    for (int64_t c = 0; c < blocks; ++c)
      ASSERT_EQ(far.scales[r * far.scale_stride + c], near.scales[r * near.scale_stride + c]) << name;
}

class FarWeights : public testing::TestWithParam<const char*> {};

TEST_P(FarWeights, AreThoseOfTheMapping) {
  const std::string model = GetParam();
  const std::filesystem::path root = model.ends_with("-fp8") ? GODWIT_BINARY_DIR : GODWIT_SOURCE_DIR;
  const auto checkpoint = Checkpoint::open(root / "models" / model);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const auto config = read_model_config(root / "models" / model);
  ASSERT_TRUE(config.ok());
  const auto inventory = found_inventory(*checkpoint, make_inventory(*config));
  const bool draft = model.starts_with("tiny");  // the random model's block lacks a matrix
  int splits = 0;
  for (const auto& [tp, ep] : {std::pair{1, 1}, {2, 1}, {3, 1}, {4, 2}, {4, 4}}) {
    const auto plan = ShardPlan::make(config->text, tp, ep);
    if (!plan.ok() || !check_fp8_cuts(*plan, inventory).ok()) continue;
    ++splits;
    for (int64_t rank = 0; rank < tp; ++rank) {
      FarMemory far_memory, near_memory(true);
      const auto far = bind_weights(*checkpoint, *config, *plan, rank, far_memory, draft);
      const auto near = bind_weights(*checkpoint, *config, *plan, rank, near_memory, draft);
      ASSERT_TRUE(far.ok() && near.ok());
      EXPECT_EQ((*far)->bytes, (*near)->bytes);
      EXPECT_EQ((*far)->draft.has_value(), draft);
      const auto expected = all_weights(**near), got = all_weights(**far);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        expect_same(expected[i].first, expected[i].second, got[i].second);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GE(splits, model.starts_with("tiny") ? 4 : 1);
}

INSTANTIATE_TEST_SUITE_P(Models, FarWeights,
                         testing::Values("tiny-glm5next", "random-glm5next", "tiny-glm5next-fp8",
                                         "random-glm5next-fp8"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(FarWeights, ADraftBlockThatLacksAMatrixIsRefused) {
  const std::filesystem::path dir = std::filesystem::path(GODWIT_SOURCE_DIR) / "models/random-glm5next";
  const auto checkpoint = Checkpoint::open(dir);
  const auto config = read_model_config(dir);
  ASSERT_TRUE(checkpoint.ok() && config.ok());
  const auto plan = ShardPlan::make(config->text, 1, 1);
  FarMemory memory;
  const auto bound = bind_weights(*checkpoint, *config, *plan, 0, memory, true);
  ASSERT_FALSE(bound.ok());
  EXPECT_NE(bound.error().message.find("shared_experts.down_proj"), std::string::npos)
      << bound.error().message;
}

TEST(FarWeights, AFileThatChangedIsRefused) {
  const std::filesystem::path dir = testing::TempDir() + "godwit-far-" + std::to_string(getpid());
  std::filesystem::copy(std::filesystem::path(GODWIT_SOURCE_DIR) / "models/random-glm5next", dir);
  const auto checkpoint = Checkpoint::open(dir);
  const auto config = read_model_config(dir);
  ASSERT_TRUE(checkpoint.ok() && config.ok());
  for (const auto& entry : std::filesystem::directory_iterator(dir))
    if (entry.path().extension() == ".safetensors")
      std::filesystem::last_write_time(entry, std::filesystem::file_time_type{});
  const auto plan = ShardPlan::make(config->text, 1, 1);
  FarMemory memory;
  const auto bound = bind_weights(*checkpoint, *config, *plan, 0, memory);
  std::filesystem::remove_all(dir);
  ASSERT_FALSE(bound.ok());
  EXPECT_NE(bound.error().message.find("changed"), std::string::npos) << bound.error().message;
  EXPECT_EQ(memory.allocations(), 0u);
}

}  // namespace
}  // namespace godwit::model
