#include "config/model_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/log.h"
#include "config/model_config_parts.h"

namespace godwit {
namespace {

Result<std::string> read_text_file(const std::filesystem::path& path) {
  constexpr uintmax_t kLargest = 16 << 20;
  std::error_code failure;
  const uintmax_t size = std::filesystem::file_size(path, failure);
  if (failure) {
    return make_error(ErrorCode::data_refused, path.filename(), "{}: {}", path.string(), failure.message());
  }
  if (size > kLargest) {
    return make_error(ErrorCode::data_refused, path.filename(), "{} is {} bytes, limit {}", path.string(),
                      size, kLargest);
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return make_error(ErrorCode::data_refused, path.filename(), "{} cannot be read", path.string());
  return text.str();
}

Result<Json> parse_object(std::string_view text, std::string_view file) {
  Result<Json> json = parse_json(text, {.depth = 32, .values = 1'000'000});
  if (!json.ok()) {
    return make_error(ErrorCode::data_refused, std::string(file), "{}: {}", file, json.error().message);
  }
  if (!json->is_object()) {
    return make_error(ErrorCode::data_refused, std::string(file), "{} is not a JSON object", file);
  }
  return json;
}

// The released FP8 form and nothing else (§2.1). Which tensors are quantised is told by their scales (§3.4).
Result<bool> read_quantization(ConfigReader& top, std::string_view file) {
  const Json* value = top.raw("quantization_config");
  if (!value || value->is_null()) return false;
  top.require(value->is_object(), "quantization_config", "an object");
  GODWIT_TRY(top.error());
  ConfigReader in(&value->as_object(), fmt::format("{}: quantization_config", file));
  in.expect_required("quant_method", Json("fp8"));
  in.expect("fmt", Json("e4m3"));
  in.expect("activation_scheme", Json("dynamic"));
  in.expect_required("weight_block_size", Json(JsonArray{Json(128), Json(128)}));
  in.ignore({"modules_to_not_convert"});
  GODWIT_TRY(in.finish_refusing_unknown());
  return true;
}

void append_unique(std::vector<int64_t>& ids, const std::vector<int64_t>& more) {
  for (int64_t id : more) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
}

const JsonObject* section(ConfigReader& top, std::string_view key) {
  const Json* value = top.raw(key);
  top.require(value && value->is_object(), key, "an object");
  return value && value->is_object() ? &value->as_object() : nullptr;
}

void read_token_ids(ConfigReader& top, ConfigReader& text, ModelConfig& config) {
  const int64_t last = config.text.vocab_size - 1;
  config.image_token_id = top.integer("image_token_id", 0, last);
  config.video_token_id = top.integer("video_token_id", 0, last);
  config.image_start_token_id = top.integer("image_start_token_id", 0, last);
  config.image_end_token_id = top.integer("image_end_token_id", 0, last);
  config.video_start_token_id = top.integer("video_start_token_id", 0, last);
  config.video_end_token_id = top.integer("video_end_token_id", 0, last);
  const auto outer_pad = top.optional_integer("pad_token_id", 0, last);
  const auto inner_pad = text.optional_integer("pad_token_id", 0, last);
  config.pad_token_id = outer_pad ? *outer_pad : inner_pad.value_or(-1);
  append_unique(config.eos_token_ids, top.integers("eos_token_id", 0, last));
  append_unique(config.eos_token_ids, text.integers("eos_token_id", 0, last));
}

}  // namespace

Result<void> read_generation_config(std::string_view json_text, ModelConfig& config) {
  GODWIT_ASSIGN(const Json json, parse_object(json_text, "generation_config.json"));
  ConfigReader in(&json.as_object(), "generation_config.json");
  GenerationDefaults& out = config.generation;
  out.temperature = in.optional_real("temperature", 0, 100);
  out.top_p = in.optional_real("top_p", 1e-9, 1);
  out.min_p = in.optional_real("min_p", 0, 1);
  out.top_k = in.optional_integer("top_k", -1, config.text.vocab_size);
  out.repetition_penalty = in.optional_real("repetition_penalty", 1e-3, 1e3);
  append_unique(config.eos_token_ids, in.integers("eos_token_id", 0, config.text.vocab_size - 1));
  in.ignore({"_from_model_config", "pad_token_id", "bos_token_id", "transformers_version"});
  // do_sample: false means greedy whatever the temperature says.
  const Json* sample = in.raw("do_sample");
  in.require(!sample || sample->is_bool(), "do_sample", "true or false");
  if (sample && sample->is_bool() && !sample->as_bool()) out.temperature = 0.0;
  GODWIT_TRY(in.error());
  if (auto unknown = in.unknown_keys(); !unknown.empty()) {
    log_warn("generation_config.json: keys without effect here: {}", fmt::join(unknown, ", "));
  }
  return {};
}

Result<ModelConfig> parse_model_config(std::string_view config_json, std::string_view generation_json,
                                       std::string_view config_name) {
  GODWIT_ASSIGN(const Json json, parse_object(config_json, config_name));
  ConfigReader top(&json.as_object(), std::string(config_name));
  ModelConfig config;
  top.expect_required("model_type", Json("glm5_next"));
  top.expect("architectures", Json(JsonArray{Json("Glm5NextForConditionalGeneration")}));
  top.expect("tie_word_embeddings", Json(false));
  top.ignore({"dtype", "torch_dtype", "transformers_version", "bos_token_id"});
  const JsonObject* text = section(top, "text_config");
  const JsonObject* vision = section(top, "vision_config");
  GODWIT_TRY(top.error());
  GODWIT_ASSIGN(config.text, read_text_config(*text, config_name));
  GODWIT_ASSIGN(config.vision, read_vision_config(*vision, config_name, config.text.hidden_size));
  GODWIT_ASSIGN(config.fp8_blocks, read_quantization(top, config_name));
  ConfigReader text_ids(text, fmt::format("{}: text_config", config_name));
  read_token_ids(top, text_ids, config);
  GODWIT_TRY(top.error());
  GODWIT_TRY(text_ids.error());
  if (auto unknown = top.unknown_keys(); !unknown.empty()) {
    log_warn("{}: top-level keys without effect here: {}", config_name, fmt::join(unknown, ", "));
  }
  if (!generation_json.empty()) GODWIT_TRY(read_generation_config(generation_json, config));
  return config;
}

Result<ModelConfig> read_model_config(const std::filesystem::path& dir) {
  GODWIT_ASSIGN(const std::string config, read_text_file(dir / "config.json"));
  std::string generation;
  std::error_code failure;
  if (std::filesystem::exists(dir / "generation_config.json", failure)) {
    GODWIT_ASSIGN(generation, read_text_file(dir / "generation_config.json"));
    if (generation.empty()) {
      return make_error(ErrorCode::data_refused, "generation_config.json", "{} is empty",
                        (dir / "generation_config.json").string());
    }
  }
  return parse_model_config(config, generation, (dir / "config.json").string());
}

}  // namespace godwit
