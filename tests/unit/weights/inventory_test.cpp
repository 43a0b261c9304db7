// The released checkpoint by its config.json alone: counts and bytes of glm5_next spec §3.1, §3.6 and §15.3.
#include "weights/inventory.h"

#include <gtest/gtest.h>

#include <set>

#include "weights/shard_plan.h"
#include "weights/totals.h"
#include "weights_test_support.h"

namespace godwit {
namespace {

// The spec's table counts the two latent norms (1536, 512) and the index key norm (2 x 128) of the draft
// block with the main model's norms.
constexpr int64_t kDraftNormsUnderMain = (1536 + 512 + 256) * 2;

TEST(Inventory, CountsTheRelease) {
  const std::vector<TensorSpec> inventory = make_inventory(released_config());
  const Totals all = totals(inventory, Form::fp8).all();
  EXPECT_EQ(all.tensors, 76'108);
  EXPECT_EQ(all.parameters, 321'323'031'390);
  EXPECT_EQ(all.bytes(), 328'326'771'576);
  EXPECT_EQ(all.f8_elements, 314'396'639'232);
  EXPECT_EQ(all.bf16_elements, 6'926'096'640);
  EXPECT_EQ(all.f32_elements, 19'484'766);
  int64_t scales = 0, nextn_scales = 0, nextn = 0, vision = 0;
  std::set<std::string> names;
  for (const TensorSpec& tensor : inventory) {
    names.insert(tensor.name);
    scales += tensor.storage == Storage::quantised;
    nextn += tensor.nextn;
    nextn_scales += tensor.nextn && tensor.storage == Storage::quantised;
    vision += tensor.component == Component::vision;
  }
  EXPECT_EQ(names.size(), inventory.size());
  EXPECT_EQ(scales, 37'338);
  EXPECT_EQ(nextn_scales, 871);
  EXPECT_EQ(nextn + nextn_scales, 1'760);
  EXPECT_EQ(vision, 347);
  EXPECT_EQ(totals(inventory, Form::bf16).all().tensors, 76'108 - 37'338);
}

TEST(Inventory, CountsTheComponents) {
  const TotalsTable table = totals(make_inventory(released_config()), Form::fp8);
  struct Row {
    Component component;
    int64_t elements, weight_bytes, scale_bytes;
  };
  const Row kMain[] = {
      {Component::embed, 634'388'480, 1'268'776'960, 0},
      {Component::lm_head, 634'388'480, 1'268'776'960, 0},
      {Component::mla, 1'107'296'256, 1'107'296'256, 270'336},
      {Component::kv_b, 184'549'376, 369'098'752, 0},
      {Component::dense, 452'984'832, 452'984'832, 110'592},
      {Component::router, 49'557'312, 99'138'816, 0},
      {Component::shared_experts, 1'056'964'608, 1'056'964'608, 258'048},
      {Component::experts, 304'405'807'104, 304'405'807'104, 74'317'824},
      {Component::mhc, 35'391'870, 70'788'600, 0},
      {Component::eh_proj, 0, 0, 0},
      {Component::vision, 563'627'008, 1'127'254'016, 0},
  };
  for (const Row& row : kMain) {
    const Totals& found = table.main[static_cast<size_t>(row.component)];
    EXPECT_EQ(found.parameters, row.elements) << name_of(row.component);
    EXPECT_EQ(found.weight_bytes, row.weight_bytes) << name_of(row.component);
    EXPECT_EQ(found.scale_bytes, row.scale_bytes) << name_of(row.component);
  }
  const Row kNextn[] = {
      {Component::mla, 100'663'296, 100'663'296, 24'576},
      {Component::kv_b, 16'777'216, 33'554'432, 0},
      {Component::router, 1'179'936, 2'360'448, 0},
      {Component::shared_experts, 25'165'824, 25'165'824, 6'144},
      {Component::experts, 7'247'757'312, 7'247'757'312, 1'769'472},
      {Component::eh_proj, 33'554'432, 67'108'864, 0},
  };
  for (const Row& row : kNextn) {
    const Totals& found = table.nextn[static_cast<size_t>(row.component)];
    EXPECT_EQ(found.parameters, row.elements) << name_of(row.component);
    EXPECT_EQ(found.weight_bytes, row.weight_bytes) << name_of(row.component);
    EXPECT_EQ(found.scale_bytes, row.scale_bytes) << name_of(row.component);
  }
  auto main = [&](Component c) { return table.main[static_cast<size_t>(c)]; };
  auto nextn = [&](Component c) { return table.nextn[static_cast<size_t>(c)]; };
  EXPECT_EQ(main(Component::kda).weight_bytes, 9'366'348'288);
  EXPECT_EQ(main(Component::indexer).weight_bytes, 164'375'552);
  EXPECT_EQ(nextn(Component::indexer).weight_bytes, 14'943'232);
  EXPECT_EQ(main(Component::norms).weight_bytes + kDraftNormsUnderMain, 809'472);
  EXPECT_EQ(nextn(Component::norms).weight_bytes - kDraftNormsUnderMain, 40'960);
  EXPECT_EQ(table.main_total().bytes() + kDraftNormsUnderMain, 319'706'123'000);
  EXPECT_EQ(table.nextn_total().bytes() - kDraftNormsUnderMain, 7'493'394'560);
  EXPECT_EQ(table.vision_total().bytes(), 1'127'254'016);
}

}  // namespace
}  // namespace godwit
