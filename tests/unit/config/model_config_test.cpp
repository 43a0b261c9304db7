#include "config/model_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json.h"

namespace godwit {
namespace {

const std::filesystem::path kSource = GODWIT_SOURCE_DIR;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Json real_json() {
  Result<Json> json = parse_json(read_file(kSource / "tests/data/glm-5.3-flash-config.json"));
  EXPECT_TRUE(json.ok());
  return json.ok() ? std::move(json).value() : Json();
}

// The released file with one member replaced; `section` empty: top level.
std::string with(std::string_view section, std::string_view key, Json value) {
  Json json = real_json();
  JsonObject& object = section.empty() ? json.as_object() : json.as_object()[section].as_object();
  object.set(key, std::move(value));
  return dump_json(json);
}
std::string without(std::string_view section, std::string_view key) {
  Json json = real_json();
  JsonObject& object = section.empty() ? json.as_object() : json.as_object()[section].as_object();
  EXPECT_TRUE(object.erase(key));
  return dump_json(json);
}
std::string refusal(const std::string& text) {
  Result<ModelConfig> config = parse_model_config(text, "");
  if (config.ok()) return "accepted";
  EXPECT_EQ(config.error().code, ErrorCode::data_refused);
  return config.error().message;
}
#define EXPECT_REFUSED(text, ...)                                  \
  do {                                                             \
    const std::string message = refusal(text);                     \
    for (std::string part : std::vector<std::string>{__VA_ARGS__}) \
      EXPECT_NE(message.find(part), std::string::npos) << message; \
  } while (false)

TEST(ModelConfig, ReadsTheReleasedFile) {
  Result<ModelConfig> result = parse_model_config(dump_json(real_json()), "");
  ASSERT_TRUE(result.ok()) << result.error().message;
  const ModelConfig& config = *result;
  const TextConfig& text = config.text;
  EXPECT_EQ(text.vocab_size, 154880);
  EXPECT_EQ(text.hidden_size, 4096);
  EXPECT_EQ(text.num_hidden_layers, 45);
  ASSERT_EQ(text.layers.size(), 45u);
  for (size_t i = 0; i < 45; ++i) {
    EXPECT_EQ(text.layers[i].attention, i % 4 == 3 ? LayerAttention::dsa : LayerAttention::kda) << i;
    EXPECT_EQ(text.layers[i].indexer, LayerIndexer::full) << i;
    EXPECT_EQ(text.layers[i].mlp, i < 3 ? LayerMlp::dense : LayerMlp::sparse) << i;
  }
  EXPECT_EQ(text.qk_head_dim, 256);
  EXPECT_EQ(text.index_kpool, 4);
  EXPECT_EQ(text.index_topk, 2048);
  EXPECT_EQ(text.linear_num_heads, 64);
  EXPECT_EQ(text.linear_head_dim, 128);
  EXPECT_EQ(text.linear_conv_kernel_dim, 4);
  EXPECT_EQ(text.linear_lower_bound, -5.0);
  EXPECT_EQ(text.num_experts_per_tok, 8);
  EXPECT_EQ(text.hc_rows(), 24);
  EXPECT_EQ(text.num_nextn_predict_layers, 1);
  EXPECT_EQ(config.vision.out_hidden_size, 4096);
  EXPECT_EQ(config.vision.projection_intermediate_size, 10240);
  EXPECT_EQ(config.vision.head_dim(), 64);
  EXPECT_EQ(config.image_token_id, 154854);
  EXPECT_EQ(config.video_end_token_id, 154833);
  EXPECT_EQ(config.pad_token_id, 154820);
  EXPECT_EQ(config.eos_token_ids, (std::vector<int64_t>{154820, 154827, 154829}));
  EXPECT_TRUE(config.fp8_blocks);
}

TEST(ModelConfig, ReadsTheSmallModels) {
  Result<ModelConfig> tiny = read_model_config(kSource / "models/tiny-glm5next");
  ASSERT_TRUE(tiny.ok()) << tiny.error().message;
  EXPECT_EQ(tiny->text.num_hidden_layers, 8);
  EXPECT_FALSE(tiny->fp8_blocks);
  EXPECT_EQ(tiny->generation.temperature, 1.0);
  EXPECT_EQ(tiny->generation.top_p, 0.95);
  EXPECT_FALSE(tiny->generation.top_k.has_value());
  EXPECT_EQ(tiny->eos_token_ids, (std::vector<int64_t>{2500, 2507, 2509}));
  EXPECT_EQ(tiny->pad_token_id, 2500);

  Result<ModelConfig> odd = read_model_config(kSource / "models/random-glm5next");
  ASSERT_TRUE(odd.ok()) << odd.error().message;
  EXPECT_EQ(odd->text.layers[2].indexer, LayerIndexer::shared);
  EXPECT_EQ(odd->text.layers[4].indexer, LayerIndexer::full);
  EXPECT_EQ(odd->text.layers[1].mlp, LayerMlp::dense);
  EXPECT_EQ(odd->text.layers[2].mlp, LayerMlp::sparse);
  EXPECT_EQ(odd->text.v_head_dim, 40);
}

TEST(ModelConfig, RefusesKeysItDoesNotKnow) {
  EXPECT_REFUSED(with("text_config", "rope_theta", Json(10000)), "text_config", "rope_theta", "refused");
  EXPECT_REFUSED(with("vision_config", "window_size", Json(7)), "vision_config", "window_size");
  EXPECT_REFUSED(with("quantization_config", "group", Json(7)), "quantization_config", "group");
  Json json = real_json();
  json.as_object()["text_config"].as_object()["linear_attn_config"].as_object().set("decay", Json(1));
  EXPECT_REFUSED(dump_json(json), "linear_attn_config", "decay");
  // Elsewhere a key cannot change what the model computes.
  EXPECT_EQ(refusal(with("", "transformers_weights_hint", Json("x"))), "accepted");
}

TEST(ModelConfig, RefusesWhatIsNotBuilt) {
  const struct {
    const char* key;
    Json value;
    const char* supported;
  } kCases[] = {
      {"hidden_act", Json("gelu"), "\"silu\""},
      {"scoring_func", Json("softmax"), "\"sigmoid\""},
      {"topk_method", Json("greedy"), "\"noaux_tc\""},
      {"n_group", Json(8), "1"},
      {"topk_group", Json(4), "1"},
      {"norm_topk_prob", Json(false), "true"},
      {"moe_router_dtype", Json("bfloat16"), "\"float32\""},
      {"qk_rope_head_dim", Json(64), "0"},
      {"qk_nope_head_dim", Json(192), "256"},
      {"num_key_value_heads", Json(8), "64"},
      {"mla_use_nope", Json(false), "true"},
      {"attention_bias", Json(true), "false"},
      {"tie_word_embeddings", Json(true), "false"},
      {"mhc", Json(false), "true"},
      {"index_kpool_compress", Json(false), "true"},
      {"index_kpool_always_select_tail", Json(false), "true"},
      {"index_kpool", Json(3), "a divisor of 64"},
      {"index_kpool", Json(128), "from 1 to 64"},
      {"index_topk", Json(2046), "a divisor of index_topk (2046)"},
      {"num_nextn_predict_layers", Json(2), "from 0 to 1"},
      {"num_experts_per_tok", Json(289), "from 1 to 288"},
      {"first_k_dense_replace", Json(2), "first_k_dense_replace (2)"},
      {"num_hidden_layers", Json(44), "44"},
      {"rms_norm_eps", Json(0.5), "from"},
      {"vocab_size", Json(-1), "from 1"},
      {"vocab_size", Json(1e5), "an integer"},
      {"vocab_size", Json::big_integer("99999999999999999999"), "from 1"},
      {"hidden_size", Json("4096"), "an integer"},
      {"linear_num_heads", Json(32), "64"},
      {"linear_lower_bound", Json(-4.0), "-5"},
      {"linear_attn_config", Json(3), "an object"},
      {"index_share_for_mtp_iteration", Json(1), "true or false"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.key);
    const std::string message = refusal(with("text_config", c.key, c.value));
    EXPECT_NE(message.find(c.supported), std::string::npos) << message;
    EXPECT_NE(message.find("text_config."), std::string::npos) << message;
  }
  EXPECT_REFUSED(with("vision_config", "out_hidden_size", Json(1536)),
                 "vision_config.out_hidden_size is 1536", "4096");
  EXPECT_REFUSED(with("vision_config", "num_heads", Json(12)), "num_heads is 12", "1024");
  EXPECT_REFUSED(with("vision_config", "attention_bias", Json(false)), "attention_bias");
}

TEST(ModelConfig, RefusesOtherQuantisations) {
  EXPECT_REFUSED(with("quantization_config", "quant_method", Json("awq")), "quant_method is \"awq\"",
                 "\"fp8\"");
  EXPECT_REFUSED(with("quantization_config", "fmt", Json("e5m2")), "e5m2");
  EXPECT_REFUSED(with("quantization_config", "activation_scheme", Json("static")), "static");
  EXPECT_REFUSED(with("quantization_config", "weight_block_size", Json(JsonArray{Json(64), Json(64)})),
                 "[64, 64]");
  EXPECT_REFUSED(without("quantization_config", "weight_block_size"), "weight_block_size is missing");
}

TEST(ModelConfig, ChecksLayerLists) {
  JsonArray types, indexers;
  for (int i = 0; i < 45; ++i) types.push_back(i % 4 == 3 ? "deepseek_sparse_attention" : "linear_attention");
  for (int i = 0; i < 45; ++i) indexers.push_back(i == 7 ? "shared" : "full");
  // Layer 7 follows KDA layer 6: nobody left a selection (§10.8).
  EXPECT_REFUSED(with("text_config", "indexer_types", Json(indexers)), "indexer_types", "layer 7");
  types[5] = "sliding_attention";
  EXPECT_REFUSED(with("text_config", "layer_types", Json(types)), "entry 5", "sliding_attention");
  types[5] = "deepseek_sparse_attention";
  EXPECT_REFUSED(with("text_config", "layer_types", Json(types)), "kda_layers");
  types.pop_back();
  EXPECT_REFUSED(with("text_config", "layer_types", Json(types)), "44 entries", "45");

  // Counting from 1 is read too.
  Json json = real_json();
  JsonObject& nested = json.as_object()["text_config"].as_object()["linear_attn_config"].as_object();
  for (std::string_view key : {"kda_layers", "full_attn_layers"}) {
    for (Json& id : nested[key].as_array()) id = Json(id.as_integer() + 1);
  }
  EXPECT_EQ(refusal(dump_json(json)), "accepted");
  nested["kda_layers"].as_array()[0] = Json(44);
  EXPECT_REFUSED(dump_json(json), "kda_layers");
}

TEST(ModelConfig, ReadsFlatKdaKeysAlone) {
  Json json = real_json();
  JsonObject& text = json.as_object()["text_config"].as_object();
  text.erase("linear_attn_config");
  EXPECT_REFUSED(dump_json(json), "linear_num_heads is missing");
  text.set("linear_num_heads", Json(64));
  text.set("linear_head_dim", Json(128));
  text.set("linear_conv_kernel_dim", Json(4));
  text.set("linear_lower_bound", Json(-5.0));
  EXPECT_EQ(refusal(dump_json(json)), "accepted");
  text.set("linear_lower_bound", Json(-6.0));
  EXPECT_REFUSED(dump_json(json), "linear_lower_bound is -6.0", "-5");
}

TEST(ModelConfig, RequiresEveryKeyThatHasNoDefault) {
  for (const char* key :
       {"vocab_size", "hidden_size", "layer_types", "index_kpool", "mhc", "hc_mult", "swiglu_limit",
        "qk_rope_head_dim", "num_experts_per_tok", "routed_scaling_factor", "max_position_embeddings"}) {
    EXPECT_REFUSED(without("text_config", key), std::string(key) + " is missing");
  }
  for (const char* key : {"depth", "out_hidden_size", "swiglu_limit"}) {
    EXPECT_REFUSED(without("vision_config", key), std::string(key) + " is missing");
  }
  for (const char* key : {"text_config", "vision_config", "image_token_id", "model_type"}) {
    EXPECT_REFUSED(without("", key), std::string(key) + " is missing");
  }
  EXPECT_REFUSED(with("", "model_type", Json("llama")), "model_type is \"llama\"", "glm5_next");
  EXPECT_REFUSED(with("", "image_token_id", Json(154880)), "image_token_id is 154880", "154879");
}

TEST(ModelConfig, MergesGenerationDefaults) {
  const std::string config = dump_json(real_json());
  Result<ModelConfig> merged = parse_model_config(
      config,
      R"({"temperature": 0.6, "top_p": 0.9, "top_k": 20, "eos_token_id": [154829, 7], "do_sample": true})");
  ASSERT_TRUE(merged.ok()) << merged.error().message;
  EXPECT_EQ(merged->eos_token_ids, (std::vector<int64_t>{154820, 154827, 154829, 7}));
  EXPECT_EQ(merged->generation.temperature, 0.6);
  EXPECT_EQ(merged->generation.top_k, 20);
  Result<ModelConfig> greedy = parse_model_config(config, R"({"do_sample": false, "eos_token_id": 7})");
  ASSERT_TRUE(greedy.ok());
  EXPECT_EQ(greedy->generation.temperature, 0.0);
  Result<ModelConfig> bad = parse_model_config(config, R"({"top_p": 1.5})");
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.error().message.find("generation_config.json.top_p is 1.5"), std::string::npos)
      << bad.error().message;
}

TEST(ModelConfig, RefusesWhatIsNoJson) {
  EXPECT_REFUSED("", "config.json");
  EXPECT_REFUSED("{", "config.json");
  EXPECT_REFUSED("[1]", "not a JSON object");
  EXPECT_REFUSED(std::string(1000, '['), "config.json");
  Result<ModelConfig> absent = read_model_config(kSource / "models/absent");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::data_refused);
}

}  // namespace
}  // namespace godwit
