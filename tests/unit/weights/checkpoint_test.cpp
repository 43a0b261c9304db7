// A whole checkpoint against its configuration: what is accepted, and that every kind of damage is refused by
// name.
#include "weights/checkpoint.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <limits>

#include "base/json.h"
#include "weights/inventory.h"
#include "weights/safetensors_writer.h"
#include "weights_test_support.h"

namespace godwit {
namespace {

// A configuration whose checkpoint is a few kilobytes.
ModelConfig small() {
  ModelConfig config = small_config("random-glm5next");
  config.text.hidden_size = config.vision.out_hidden_size = 8;
  config.text.vocab_size = 16;
  config.text.n_routed_experts = 2;
  config.vision.patch_size = 2;
  return config;
}

struct Stored {
  DType dtype;
  std::vector<int64_t> shape;
};
using Tensors = std::map<std::string, Stored>;

Tensors tensors_of(const ModelConfig& config) {
  Tensors out;
  for (const TensorSpec& tensor : make_inventory(config)) {
    out[tensor.name] = {tensor.storage == Storage::f32 ? DType::f32 : DType::bf16, tensor.shape};
  }
  return out;
}

void write_tensors(const std::filesystem::path& path, const Tensors& tensors) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, stored] : tensors) entries.push_back({name, stored.dtype, stored.shape});
  auto writer = SafetensorsWriter::create(path, std::move(entries));
  ASSERT_TRUE(writer.ok());
  for (const SafetensorsEntry& entry : writer->entries()) {
    ASSERT_TRUE(writer->write(std::string(entry.bytes, '\0')).ok());
  }
  ASSERT_TRUE(writer->finish().ok());
}

// "accepted", or the message of the refusal.
std::string check_dir(const std::filesystem::path& dir, const ModelConfig& config,
                      NextnUse nextn = NextnUse::required) {
  Result<Checkpoint> checkpoint = Checkpoint::open(dir);
  if (!checkpoint.ok()) {
    EXPECT_EQ(checkpoint.error().code, ErrorCode::data_refused);
    return checkpoint.error().message;
  }
  Result<CheckReport> report = check_checkpoint(*checkpoint, make_inventory(config), nextn);
  if (report.ok()) return "accepted";
  EXPECT_EQ(report.error().code, ErrorCode::data_refused);
  return report.error().message;
}
std::string check(const Tensors& tensors, const ModelConfig& config) {
  TempDir dir;
  write_tensors(dir.path() / "model.safetensors", tensors);
  return check_dir(dir.path(), config);
}
void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
}

constexpr const char* kQ = "model.language_model.layers.1.self_attn.q_b_proj.weight";     // quantised
constexpr const char* kKvB = "model.language_model.layers.1.self_attn.kv_b_proj.weight";  // never
constexpr const char* kALog = "model.language_model.layers.0.self_attn.A_log";

TEST(Checkpoint, AcceptsTheSmallModels) {
  EXPECT_EQ(check_dir(source_path("models/tiny-glm5next"), small_config("tiny-glm5next")), "accepted");
  // The random model was published without one matrix of its draft block: usable only without drafting.
  const ModelConfig odd = small_config("random-glm5next");
  const std::string lacking = "model.language_model.layers.6.mlp.shared_experts.down_proj.weight";
  expect_parts(check_dir(source_path("models/random-glm5next"), odd),
               {"in 1 tensor:", lacking, "missing", "[96, 48]"});
  Result<Checkpoint> checkpoint = Checkpoint::open(source_path("models/random-glm5next"));
  ASSERT_TRUE(checkpoint.ok());
  Result<CheckReport> report = check_checkpoint(*checkpoint, make_inventory(odd), NextnUse::optional);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->nextn_missing, std::vector<std::string>{lacking});
  EXPECT_EQ(report->fp8_weights, 0);
}

TEST(Checkpoint, TakesEitherDtypeAndEitherShapeOfALog) {
  const ModelConfig config = small();
  const Tensors good = tensors_of(config);
  EXPECT_EQ(check(good, config), "accepted");
  Tensors swapped = good;
  for (auto& [name, stored] : swapped) stored.dtype = stored.dtype == DType::f32 ? DType::bf16 : DType::f32;
  EXPECT_EQ(check(swapped, config), "accepted");
  Tensors long_a_log = good;
  long_a_log[kALog].shape = {1, 1, config.text.linear_num_heads, 1};
  EXPECT_EQ(check(long_a_log, config), "accepted");
  long_a_log[kALog].shape = {1, config.text.linear_num_heads};
  expect_parts(check(long_a_log, config), {kALog, "[1, 3]", "expected shape [3]"});
}

TEST(Checkpoint, NamesEveryTensorThatDoesNotFit) {
  const ModelConfig config = small();
  const Tensors good = tensors_of(config);
  auto changed = [&](const std::function<void(Tensors&)>& change) {
    Tensors tensors = good;
    change(tensors);
    return check(tensors, config);
  };
  expect_parts(changed([](Tensors& t) { t.erase(kKvB); }), {kKvB, "missing", "expected [264, 72]"});
  expect_parts(changed([](Tensors& t) {
                 t["model.language_model.layers.7.x"] = {DType::bf16, {2}};
               }),
               {"model.language_model.layers.7.x", "BF16 [2]", "not part of this model", "offset"});
  expect_parts(changed([](Tensors& t) {
                 t[kKvB].shape = {72, 264};
               }),
               {kKvB, "[72, 264]", "expected shape [264, 72]"});
  expect_parts(changed([](Tensors& t) { t[kKvB].dtype = DType::i32; }),
               {kKvB, "I32", "expected BF16 or F32"});
  expect_parts(changed([](Tensors& t) { t[kKvB].dtype = DType::f8_e4m3; }),
               {kKvB, "F8_E4M3", "expected BF16 or F32"});
  // Many at once: ten are named, the rest counted.
  expect_parts(changed([](Tensors& t) {
                 t.clear();
                 t["x"] = {DType::bf16, {1}};
               }),
               {"embed_tokens", "and ", " more"});
}

TEST(Checkpoint, DecidesFp8ByTheScales) {
  const ModelConfig config = small();
  const Tensors good = tensors_of(config);
  const std::string scales = scale_name(kQ);
  auto with = [&](DType weight, std::optional<Stored> scale) {
    Tensors tensors = good;
    tensors[kQ].dtype = weight;
    if (scale) tensors[scales] = *scale;
    return check(tensors, config);
  };
  EXPECT_EQ(with(DType::f8_e4m3, Stored{DType::f32, {2, 1}}), "accepted");  // 144 x 56: two block rows
  expect_parts(with(DType::f8_e4m3, std::nullopt), {kQ, scales, "is missing"});
  expect_parts(with(DType::bf16, Stored{DType::f32, {2, 1}}),
               {kQ, "BF16", "expected F8_E4M3 because", scales});
  expect_parts(with(DType::f8_e4m3, Stored{DType::f32, {1, 1}}),
               {scales, "F32 [1, 1]", "expected F32 [2, 1]"});
  expect_parts(with(DType::f8_e4m3, Stored{DType::bf16, {2, 1}}),
               {scales, "BF16 [2, 1]", "expected F32 [2, 1]"});
  Tensors stray = good;
  stray[scale_name(kKvB)] = {DType::f32, {3, 1}};
  expect_parts(check(stray, config), {scale_name(kKvB), "not part of this model"});
  Tensors orphan = good;
  orphan.erase(kQ);
  orphan[scales] = {DType::f32, {2, 1}};
  expect_parts(check(orphan, config), {scales, "without its weight"});
}

TEST(Checkpoint, RefusesScalesThatAreNoScales) {
  const ModelConfig config = small();
  Tensors tensors = tensors_of(config);
  tensors[kQ].dtype = DType::f8_e4m3;
  tensors[scale_name(kQ)] = {DType::f32, {2, 1}};
  TempDir dir;
  write_tensors(dir.path() / "model.safetensors", tensors);  // zeros everywhere
  Result<Checkpoint> checkpoint = Checkpoint::open(dir.path());
  ASSERT_TRUE(checkpoint.ok());
  const uint64_t offset = checkpoint->find(scale_name(kQ))->offset;
  auto with_scales = [&](std::array<float, 2> values) {
    std::string image = read_whole_file(dir.path() / "model.safetensors");
    std::memcpy(image.data() + offset, values.data(), sizeof values);
    // A new file: the old one is still mapped.
    std::filesystem::remove(dir.path() / "model.safetensors");
    write_whole_file(dir.path() / "model.safetensors", image);
    Result<Checkpoint> opened = Checkpoint::open(dir.path());
    EXPECT_TRUE(opened.ok());
    Result<void> checked = check_scales(*opened, make_inventory(config));
    return checked.ok() ? std::string("accepted") : checked.error().message;
  };
  EXPECT_EQ(with_scales({1.0f, 0.5f}), "accepted");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  expect_parts(with_scales({1.0f, nan}),
               {scale_name(kQ), "block [1, 0] is nan", "model.safetensors at offset"});
  expect_parts(with_scales({std::numeric_limits<float>::infinity(), 1.0f}), {"block [0, 0] is inf"});
  expect_parts(with_scales({0.0f, 1.0f}), {"block [0, 0] is 0"});
  expect_parts(with_scales({1.0f, -1.0f}), {"block [1, 0] is -1"});
}

class ShardedCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    const Tensors all = tensors_of(config_);
    for (const auto& [name, stored] : all) {
      const bool is_first = name < "model.language_model.layers.3";
      shards_[is_first ? "one.safetensors" : "two.safetensors"][name] = stored;
    }
    for (const auto& [file, tensors] : shards_) {
      write_tensors(dir_.path() / file, tensors);
      for (const auto& [name, stored] : tensors) map_.set(name, file);
    }
    write_index(Json::object({{"weight_map", map_}}));
  }
  void write_index(const Json& index) {
    write_whole_file(dir_.path() / "model.safetensors.index.json", dump_json(index));
  }
  std::string check() { return check_dir(dir_.path(), config_); }

  const ModelConfig config_ = small();
  TempDir dir_;
  std::map<std::string, Tensors> shards_;
  JsonObject map_;
};

TEST_F(ShardedCheckpoint, IsAccepted) {
  EXPECT_EQ(check(), "accepted");
  Result<Checkpoint> checkpoint = Checkpoint::open(dir_.path());
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ(checkpoint->file_count(), 2u);
  EXPECT_EQ(checkpoint->tensors().size(), make_inventory(config_).size());
  ASSERT_NE(checkpoint->find(kQ), nullptr);
  EXPECT_EQ(checkpoint->find(kQ)->file, "one.safetensors");
  EXPECT_EQ(checkpoint->find("absent"), nullptr);
}

TEST_F(ShardedCheckpoint, RefusesMissingAndTruncatedFiles) {
  const std::filesystem::path two = dir_.path() / "two.safetensors";
  const std::string whole = read_whole_file(two);
  for (size_t size : {size_t{0}, size_t{7}, size_t{8}, size_t{100}, whole.size() / 2, whole.size() - 1}) {
    write_whole_file(two, whole.substr(0, size));
    expect_parts(check(), {"two.safetensors"});
  }
  std::filesystem::remove(two);
  expect_parts(check(), {"two.safetensors", "No such file"});
}

TEST_F(ShardedCheckpoint, RefusesAnIndexThatDisagrees) {
  JsonObject moved = map_;
  moved.set(kQ, "two.safetensors");
  write_index(Json::object({{"weight_map", moved}}));
  expect_parts(check(), {kQ, "two.safetensors", "in one.safetensors"});
  JsonObject more = map_;
  more.set("extra.weight", "two.safetensors");
  write_index(Json::object({{"weight_map", more}}));
  expect_parts(check(), {"extra.weight", "in none of the files"});
  JsonObject fewer = map_;
  fewer.erase(kQ);
  write_index(Json::object({{"weight_map", fewer}}));
  expect_parts(check(), {kQ, "one.safetensors at offset", "does not list"});

  for (const char* name : {"../two.safetensors", "/etc/passwd", ""}) {
    JsonObject escaping = map_;
    escaping.set(kQ, name);
    write_index(Json::object({{"weight_map", escaping}}));
    expect_parts(check(), {kQ, "no plain file name"});
  }
  write_index(Json::object({{"weight_map", JsonObject()}}));
  expect_parts(check(), {"weight_map is empty"});
  write_index(Json::object({}));
  expect_parts(check(), {"weight_map is missing"});
  write_whole_file(dir_.path() / "model.safetensors.index.json", "{\"weight_map\": {");
  expect_parts(check(), {"model.safetensors.index.json"});
  std::filesystem::remove(dir_.path() / "model.safetensors.index.json");
  expect_parts(check(), {"neither"});
}

TEST_F(ShardedCheckpoint, RefusesATensorInTwoFiles) {
  Tensors both = shards_["two.safetensors"];
  both[kQ] = shards_["one.safetensors"][kQ];
  write_tensors(dir_.path() / "two.safetensors", both);
  expect_parts(check(), {kQ, "in both", "one.safetensors", "two.safetensors"});
}

}  // namespace
}  // namespace godwit
