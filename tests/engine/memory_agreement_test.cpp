// What the process really takes against what the ledger says (design §8: within 2 %), on a model of more than
// 2 GiB with the real tensor names. Its weights are holes in a file: every page of them is still memory once
// it is read.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "engine/engine.h"
#include "engine/reader.h"
#include "weights/safetensors_writer.h"

namespace godwit::engine {
namespace {

namespace fs = std::filesystem;

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

class MemoryAgreement : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(::testing::TempDir()) / ("godwit-memory-" + std::to_string(getpid()));
    fs::create_directories(dir_);
    write_model();
  }
  void TearDown() override { fs::remove_all(dir_); }

  // The small random model, wide enough to weigh something: six layers of all kinds.
  void write_model() {
    std::ifstream file(std::string(GODWIT_SOURCE_DIR) + "/models/random-glm5next/config.json");
    std::stringstream text;
    text << file.rdbuf();
    auto json = parse_json(text.str());
    ASSERT_TRUE(json.ok());
    Json& fields = json->as_object()["text_config"];
    for (const auto& [name, value] : {std::pair<const char*, int64_t>{"hidden_size", 2048},
                                      {"vocab_size", 65536},
                                      {"intermediate_size", 4096},
                                      {"moe_intermediate_size", 512},
                                      {"n_routed_experts", 64}})
      fields.as_object().set(name, value);
    json->as_object()["vision_config"].as_object().set("out_hidden_size", 2048);
    std::ofstream(dir_ / "config.json") << dump_json(*json);

    const auto config = read_model_config(dir_);
    ASSERT_TRUE(config.ok()) << config.error().message;
    std::vector<SafetensorsEntry> entries;
    for (const TensorSpec& spec : make_inventory(*config)) {
      SafetensorsEntry entry;
      entry.name = spec.name;
      entry.dtype = spec.storage == Storage::f32 ? DType::f32 : DType::bf16;
      entry.shape = spec.shape;
      entries.push_back(std::move(entry));
    }
    const auto writer = SafetensorsWriter::create(dir_ / "model.safetensors", std::move(entries));
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    const SafetensorsEntry& last = writer->entries().back();
    size_ = last.offset + last.bytes;
  }

  fs::path dir_;
  uint64_t size_ = 0;
};

TEST_F(MemoryAgreement, ResidentMemoryIsTheLedgerWithinTwoPercent) {
  fs::resize_file(dir_ / "model.safetensors", size_);  // the writer has closed its file by now
  const int64_t before = resident_bytes();
  EngineOptions options;
  options.model_dir = dir_;
  options.threads = 2;
  options.context = 8192;
  options.max_sequences = 16;
  options.cache_tokens = 65536;
  const auto engine = Engine::start(options, std::vector<bool>(65536, true));
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const int64_t at_ready = resident_bytes() - before;
  int64_t ledger = 0, weights = 0;
  for (const LedgerLine& line : (*engine)->info().ledger) {
    ledger += line.bytes;
    if (line.name.starts_with("weights")) weights += line.bytes;
  }
  EXPECT_GE(weights, int64_t{2} << 30) << "too small to say anything";

  Reader reader;
  Request request;
  request.prompt.assign(4, 5);
  request.stop.max_tokens = 3;
  request.stop.ignore_eos = true;
  request.sampling.temperature = 0;
  request.sink = reader.sink;
  ASSERT_TRUE((*engine)->submit(std::move(request)).ok());
  ASSERT_TRUE(reader.read());
  EXPECT_EQ(reader.end->reason, FinishReason::length);
  const int64_t after_work = resident_bytes() - before;

  const auto percent = [&](int64_t measured) {
    return 100.0 * static_cast<double>(measured - ledger) / static_cast<double>(ledger);
  };
  std::printf("ledger %ld B; resident at ready %ld B (%+.2f %%), after work %ld B (%+.2f %%)\n", ledger,
              at_ready, percent(at_ready), after_work, percent(after_work));
  EXPECT_LT(std::abs(percent(at_ready)), 2.0);
  EXPECT_LT(std::abs(percent(after_work)), 2.0);
}

}  // namespace
}  // namespace godwit::engine
