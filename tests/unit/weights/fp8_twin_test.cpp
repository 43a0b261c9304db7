// The FP8 twins the build makes are, tensor by tensor, the ones the goldens were computed from.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/hash.h"
#include "base/json.h"
#include "weights/checkpoint.h"
#include "weights/inventory.h"
#include "weights/load.h"
#include "weights/totals.h"
#include "weights_test_support.h"

namespace godwit {
namespace {

class Fp8Twin : public testing::TestWithParam<std::string> {};

TEST_P(Fp8Twin, EqualsTheRecordedOne) {
  const std::filesystem::path dir = std::filesystem::path(GODWIT_BINARY_DIR) / "models" / GetParam();
  Result<Json> recorded = parse_json(read_whole_file(source_path("tests/golden/fp8_twin_hashes.json")));
  ASSERT_TRUE(recorded.ok()) << recorded.error().message;
  const JsonObject& expected = recorded->as_object()[GetParam()].as_object();
  Result<Checkpoint> checkpoint = Checkpoint::open(dir);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->tensors().size(), expected.size());
  EXPECT_GT(expected.size(), 500u);
  for (const auto& [name, row] : expected) {
    const TensorRef* ref = checkpoint->find(name);
    ASSERT_NE(ref, nullptr) << name;
    EXPECT_EQ(name_of(ref->dtype), row.as_array()[0].as_string()) << name;
    JsonArray shape;
    for (int64_t size : ref->shape) shape.emplace_back(size);
    EXPECT_TRUE(Json(std::move(shape)) == row.as_array()[1]) << name;
    const std::string_view bytes(reinterpret_cast<const char*>(ref->data), ref->bytes);
    EXPECT_EQ(fmt::format("{:016x}", hash_bytes(bytes)), row.as_array()[2].as_string()) << name;
  }
}

TEST_P(Fp8Twin, IsReadAsFp8) {
  const std::filesystem::path dir = std::filesystem::path(GODWIT_BINARY_DIR) / "models" / GetParam();
  Result<ModelConfig> config = read_model_config(dir);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_TRUE(config->fp8_blocks);
  Result<Checkpoint> checkpoint = Checkpoint::open(dir);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const std::vector<TensorSpec> inventory = make_inventory(*config);
  Result<CheckReport> report = check_checkpoint(*checkpoint, inventory, NextnUse::optional);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_TRUE(check_scales(*checkpoint, inventory).ok());
  EXPECT_EQ(totals(found_inventory(*checkpoint, inventory), Form::fp8).all().bytes(),
            static_cast<int64_t>(checkpoint->tensor_bytes()));
  int64_t quantised = 0, scales_elsewhere = 0;
  std::vector<Buffer> copies;
  for (const TensorSpec& tensor : inventory) {
    if (tensor.storage != Storage::quantised || !checkpoint->find(tensor.name)) continue;
    ++quantised;
    Result<Weight> weight = weight_view(*checkpoint, tensor.name, copies);
    ASSERT_TRUE(weight.ok()) << weight.error().message;
    EXPECT_NE(weight->scales, nullptr);
    scales_elsewhere +=
        checkpoint->find(tensor.name)->file != checkpoint->find(scale_name(tensor.name))->file;
  }
  EXPECT_EQ(report->fp8_weights, quantised);
  EXPECT_GT(scales_elsewhere, 0);
  EXPECT_TRUE(copies.empty());
}

INSTANTIATE_TEST_SUITE_P(Models, Fp8Twin, testing::Values("tiny-glm5next-fp8", "random-glm5next-fp8"),
                         [](const auto& name) { return name.param.substr(0, name.param.find('-')); });

}  // namespace
}  // namespace godwit
