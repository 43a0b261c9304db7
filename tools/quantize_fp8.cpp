// quantize_fp8 SOURCE TARGET   writes the FP8 form of a BF16 checkpoint (models/README.md "FP8 form").
// quantize_fp8 --hashes DIR    prints dtype, shape and hash of every tensor of a checkpoint as JSON.
//
// The FP8 twins of the small models are not tracked: the build makes them with the first form, and a test
// compares them with what the second printed for the twins the goldens were computed from.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "base/hash.h"
#include "base/json.h"
#include "config/model_config.h"
#include "weights/checkpoint.h"
#include "weights/inventory.h"
#include "weights/load.h"
#include "weights/quantize.h"
#include "weights/safetensors_writer.h"
#include "weights/totals.h"

namespace {

using namespace godwit;
namespace fs = std::filesystem;

std::string_view bytes_of(const TensorRef& ref) {
  return {reinterpret_cast<const char*>(ref.data), static_cast<size_t>(ref.bytes)};
}

struct Scales {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// Tensor names of the source's files, quantised or not, and the scales met on the way.
struct Twin {
  std::map<std::string, std::vector<std::string>> shards;  // source file -> tensors
  std::map<std::string, std::vector<int64_t>> quantised;   // tensor -> shape
  std::map<std::string, Scales> scales;                    // scale tensor -> values
  JsonObject weight_map;
  int64_t total_size = 0;
};

Result<void> write_shard(const Checkpoint& source, const fs::path& path,
                         const std::vector<std::string>& names, Twin& twin) {
  std::vector<SafetensorsEntry> entries;
  for (const std::string& name : names) {
    const TensorRef& ref = *source.find(name);
    entries.push_back({name, twin.quantised.count(name) ? DType::f8_e4m3 : ref.dtype, ref.shape});
  }
  GODWIT_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(path, std::move(entries)));
  for (const SafetensorsEntry& entry : writer.entries()) {
    const TensorRef& ref = *source.find(entry.name);
    twin.weight_map.set(entry.name, path.filename().string());
    twin.total_size += static_cast<int64_t>(entry.bytes);
    if (!twin.quantised.count(entry.name)) {
      GODWIT_TRY(writer.write(bytes_of(ref)));
      continue;
    }
    std::vector<Buffer> copies;
    const Weight weight = weight_view(ref, nullptr, copies);
    Scales& scales = twin.scales[scale_name(entry.name)];
    scales.shape = {scale_count(weight.out()), scale_count(weight.in())};
    scales.values.resize(static_cast<size_t>(scales.shape[0] * scales.shape[1]));
    std::string values(entry.bytes, '\0');
    auto done =
        quantize_fp8_blocks(weight.data, reinterpret_cast<f8_e4m3*>(values.data()), scales.values.data());
    if (!done.ok())
      return make_error(ErrorCode::data_refused, entry.name, "{}: {}", entry.name, done.error().message);
    GODWIT_TRY(writer.write(values));
  }
  return writer.finish();
}

// The scales get a file of their own: that a weight and its scale lie in different files is usual (spec
// §3.7).
Result<void> write_scales(const fs::path& path, Twin& twin) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, scales] : twin.scales) entries.push_back({name, DType::f32, scales.shape});
  GODWIT_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(path, std::move(entries)));
  for (const SafetensorsEntry& entry : writer.entries()) {
    const std::vector<float>& values = twin.scales[entry.name].values;
    GODWIT_TRY(writer.write({reinterpret_cast<const char*>(values.data()), entry.bytes}));
    twin.weight_map.set(entry.name, path.filename().string());
    twin.total_size += static_cast<int64_t>(entry.bytes);
  }
  return writer.finish();
}

Result<void> write_json(const fs::path& path, const Json& json) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << dump_json(json, {.item_separator = ",", .indent = 2}) << '\n';
  file.close();
  if (file) return {};
  return make_error(ErrorCode::data_refused, path.filename(), "{} cannot be written", path.string());
}

// The modules that stay as they are, spelled without language_model as in the released file.
JsonArray modules_to_not_convert(const std::vector<TensorSpec>& inventory) {
  constexpr std::string_view kPrefix = "model.language_model.", kSuffix = ".weight";
  JsonArray modules = {"lm_head", "model.visual"};
  for (const TensorSpec& tensor : inventory) {
    if (tensor.storage == Storage::quantised || tensor.shape.size() != 2) continue;
    if (!tensor.name.starts_with(kPrefix) || !tensor.name.ends_with(kSuffix)) continue;
    const size_t length = tensor.name.size() - kPrefix.size() - kSuffix.size();
    modules.emplace_back("model." + tensor.name.substr(kPrefix.size(), length));
  }
  return modules;
}

Result<void> write_config(const fs::path& source, const fs::path& target,
                          const std::vector<TensorSpec>& inventory) {
  std::ifstream file(source);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  GODWIT_ASSIGN(Json json, parse_json(text));
  json.as_object().set("quantization_config",
                       Json::object({{"quant_method", "fp8"},
                                     {"fmt", "e4m3"},
                                     {"activation_scheme", "dynamic"},
                                     {"weight_block_size", JsonArray{128, 128}},
                                     {"modules_to_not_convert", modules_to_not_convert(inventory)}}));
  return write_json(target, json);
}

// Tokenizer, template and the like.
Result<void> copy_other_files(const fs::path& source, const fs::path& target) {
  std::error_code failure;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                           "generation_config.json", "preprocessor_config.json", "processor_config.json"}) {
    if (!fs::exists(source / name, failure)) continue;
    fs::copy_file(source / name, target / name, fs::copy_options::overwrite_existing, failure);
    if (failure)
      return make_error(ErrorCode::data_refused, name, "{}: {}", (target / name).string(), failure.message());
  }
  return {};
}

Result<void> quantise(const fs::path& source_dir, const fs::path& target) {
  GODWIT_ASSIGN(const ModelConfig config, read_model_config(source_dir));
  GODWIT_ASSIGN(const Checkpoint source, Checkpoint::open(source_dir));
  const std::vector<TensorSpec> inventory = make_inventory(config);
  GODWIT_ASSIGN(const CheckReport report, check_checkpoint(source, inventory, NextnUse::optional));
  if (report.fp8_weights > 0) {
    return make_error(ErrorCode::data_refused, source_dir.string(), "{} is in FP8 form already",
                      source_dir.string());
  }
  std::error_code failure;
  fs::create_directories(target, failure);
  if (failure)
    return make_error(ErrorCode::data_refused, target.string(), "{}: {}", target.string(), failure.message());

  Twin twin;
  for (const auto& [name, ref] : source.tensors()) twin.shards[std::string(ref.file)].push_back(name);
  for (const TensorSpec& tensor : inventory) {
    if (tensor.storage == Storage::quantised && source.find(tensor.name))
      twin.quantised[tensor.name] = tensor.shape;
  }
  const size_t files = twin.shards.size() + 1;
  size_t number = 0;
  auto next_path = [&] { return target / fmt::format("model-{:05}-of-{:05}.safetensors", ++number, files); };
  for (const auto& [file, names] : twin.shards) GODWIT_TRY(write_shard(source, next_path(), names, twin));
  GODWIT_TRY(write_scales(next_path(), twin));
  GODWIT_TRY(write_json(target / "model.safetensors.index.json",
                        Json::object({{"metadata", Json::object({{"total_size", twin.total_size}})},
                                      {"weight_map", std::move(twin.weight_map)}})));
  GODWIT_TRY(copy_other_files(source_dir, target));
  return write_config(source_dir / "config.json", target / "config.json",
                      inventory);  // last: it stands for all
}

Result<void> print_hashes(const fs::path& dir) {
  GODWIT_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(dir));
  std::string separator = "{\n";
  for (const auto& [name, ref] : checkpoint.tensors()) {
    JsonArray shape;
    for (int64_t size : ref.shape) shape.emplace_back(size);
    const Json row =
        JsonArray{name_of(ref.dtype), std::move(shape), fmt::format("{:016x}", hash_bytes(bytes_of(ref)))};
    fmt::print("{}\"{}\": {}", separator, name, dump_json(row));
    separator = ",\n";
  }
  fmt::print("\n}}\n");
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: quantize_fp8 SOURCE TARGET | quantize_fp8 --hashes DIR\n");
    return info(ErrorCode::usage).exit_code;
  }
  const bool is_hashing = std::string_view(argv[1]) == "--hashes";
  const Result<void> done = is_hashing ? print_hashes(argv[2]) : quantise(argv[1], argv[2]);
  if (done.ok()) return 0;
  fmt::print(stderr, "quantize_fp8: {}\n", done.error().message);
  return info(done.error().code).exit_code;
}
