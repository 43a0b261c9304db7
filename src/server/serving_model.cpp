#include "server/serving_model.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "server/fields.h"

namespace godwit::server {

bool ServingModel::serves(std::string_view name) const {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Result<GenerationDefaults> read_generation_defaults(const std::filesystem::path& model_dir) {
  GenerationDefaults out;
  const auto path = model_dir / "generation_config.json";
  std::ifstream file(path, std::ios::binary);
  if (!file) return out;
  const std::string text(std::istreambuf_iterator<char>(file), {});
  auto json = parse_json(text);
  if (!json || !json->is_object()) {
    return make_error(ErrorCode::data_refused, path.string(), "is not a JSON object{}{}", json ? "" : ": ",
                      json ? "" : json.error().message);
  }
  Fields fields(*json, "");
  const auto real = [&](std::string_view key, Range range, float& value) {
    value = static_cast<float>(fields.number(key, range).value_or(value));
  };
  real("temperature", {0, 100}, out.temperature);
  real("top_p", {0, 1, true}, out.top_p);
  real("repetition_penalty", {0, 100, true}, out.repetition_penalty);
  out.top_k = static_cast<int32_t>(fields.integer("top_k", 0, 1 << 30).value_or(0));
  if (fields.boolean("do_sample") == false) out.temperature = 0;
  if (fields.error()) {
    return make_error(ErrorCode::data_refused, path.string(), "{}", fields.error()->message);
  }
  return out;
}

}  // namespace godwit::server
