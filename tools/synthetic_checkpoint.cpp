// synthetic_checkpoint DIR: random weights in the FP8 form of the release for the config.json that lies in
// DIR, in shards of about 1 GB (bench/load.py).
#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/json.h"
#include "config/model_config.h"
#include "weights/inventory.h"
#include "weights/safetensors_writer.h"
#include "weights/totals.h"

namespace {

using namespace godwit;
namespace fs = std::filesystem;

constexpr uint64_t kShard = 1'000'000'000;

std::vector<SafetensorsEntry> entries_of(const std::vector<TensorSpec>& inventory) {
  std::vector<SafetensorsEntry> entries;
  for (const TensorSpec& spec : inventory) {
    const DType dtype = spec.storage == Storage::quantised ? DType::f8_e4m3
                        : spec.storage == Storage::f32     ? DType::f32
                                                           : DType::bf16;
    entries.push_back(
        {spec.name, dtype, spec.shape, 0, static_cast<uint64_t>(spec.elements() * size_of(dtype))});
    if (spec.storage != Storage::quantised) continue;
    const std::vector<int64_t> blocks = {scale_count(spec.rows()), scale_count(spec.columns())};
    entries.push_back({scale_name(spec.name), DType::f32, blocks, 0,
                       static_cast<uint64_t>(blocks[0] * blocks[1] * size_of(DType::f32))});
  }
  return entries;
}

// Every 4 bytes a small positive float, so that they pass as block scales too.
std::string noise(size_t bytes) {
  std::string out(bytes / 4 * 4 + 4, '\0');
  uint64_t state = 1;
  for (size_t i = 0; i + 4 <= out.size(); i += 4) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint32_t bits = 0x3c000000u | static_cast<uint32_t>(state >> 41);
    std::memcpy(&out[i], &bits, 4);
  }
  return out;
}

// `first`: how many tensors the shards before it have.
Result<void> write_shard(const fs::path& path, const std::vector<SafetensorsEntry>& entries,
                         std::string_view random, size_t first) {
  GODWIT_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(path, entries));
  for (const SafetensorsEntry& entry : writer.entries()) {
    // Each tensor begins elsewhere, so that no two are alike.
    const size_t room = (random.size() - entry.bytes) / 4;
    const size_t begin = first++ * 7919 % room * 4;
    GODWIT_TRY(writer.write(random.substr(begin, entry.bytes)));
  }
  return writer.finish();
}

struct Shard {
  fs::path path;
  size_t first = 0;
  std::vector<SafetensorsEntry> entries;
};

// A few shards at a time: one thread copies slower than a disk of many GB/s takes.
Result<void> write_shards(const std::vector<Shard>& shards, std::string_view random) {
  constexpr size_t kThreads = 4;
  std::atomic<size_t> next{0};
  std::vector<Result<void>> written(shards.size());
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (size_t i = next++; i < shards.size(); i = next++)
          written[i] = write_shard(shards[i].path, shards[i].entries, random, shards[i].first);
      });
    }
  }
  for (Result<void>& one : written) GODWIT_TRY(std::move(one));
  return {};
}

Result<void> write_checkpoint(const fs::path& dir) {
  GODWIT_ASSIGN(const ModelConfig config, read_model_config(dir));
  std::vector<std::vector<SafetensorsEntry>> shards(1);
  uint64_t filled = 0, largest = 0;
  for (SafetensorsEntry& entry : entries_of(make_inventory(config))) {
    largest = std::max(largest, entry.bytes);
    filled += entry.bytes;
    shards.back().push_back(std::move(entry));
    if (filled < kShard) continue;
    shards.emplace_back();
    filled = 0;
  }
  if (shards.back().empty()) shards.pop_back();
  const std::string random = noise(largest + (64 << 20));
  JsonObject weight_map;
  std::vector<Shard> files;
  for (std::vector<SafetensorsEntry>& entries : shards) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", files.size() + 1, shards.size());
    files.push_back({dir / name, weight_map.size(), std::move(entries)});
    for (const SafetensorsEntry& entry : files.back().entries) weight_map.set(entry.name, name);
  }
  GODWIT_TRY(write_shards(files, random));
  std::ofstream index(dir / "model.safetensors.index.json");
  index << dump_json(Json::object({{"weight_map", Json(std::move(weight_map))}}));
  index.close();
  if (index) return {};
  return make_error(ErrorCode::data_refused, dir.string(), "{}: the index cannot be written", dir.string());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: synthetic_checkpoint DIR (with a config.json)\n");
    return 2;
  }
  const Result<void> written = write_checkpoint(argv[1]);
  if (written.ok()) return 0;
  fmt::print(stderr, "synthetic_checkpoint: {}\n", written.error().message);
  return 1;
}
