// The engine over the CUDA backend without a GPU: what it answers, and what it does when the device fails.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/fault.h"
#include "device.h"
#include "engine/engine.h"
#include "engine/reader.h"
#include "engine/replay.h"
#include "engine/step_dump.h"

namespace godwit::engine {
namespace {

namespace fs = std::filesystem;

class CudaEngine : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    dumps_ = fs::path(::testing::TempDir()) / ("godwit-cuda-engine-" + std::string(test->name()));
    fs::remove_all(dumps_);
    fs::create_directories(dumps_);
  }
  void TearDown() override {
    fault::disarm_all();
    emulation::repair_device();
    fs::remove_all(dumps_);
  }

  EngineOptions options(const std::string& device, DType kv) const {
    EngineOptions o;
    o.model_dir = std::string(GODWIT_SOURCE_DIR) + "/models/random-glm5next";
    o.device = device;
    o.threads = 2;
    o.kv = kv;
    o.context = 512;
    o.max_sequences = 3;
    o.prefill_tokens = 64;
    o.cache_tokens = 2048;
    o.dump_dir = dumps_;
    o.build = "test build";
    return o;
  }
  static std::unique_ptr<Engine> start(const EngineOptions& options) {
    auto engine = Engine::start(options, std::vector<bool>(352, true));
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine.ok() ? std::move(*engine) : nullptr;
  }
  static Request request(Reader& reader, int32_t seed, int64_t prompt, int64_t most) {
    Request r;
    for (int64_t i = 0; i < prompt; ++i) r.prompt.push_back(static_cast<int32_t>((seed * 31 + i * 7) % 320));
    r.id = "req-" + std::to_string(seed);
    r.sampling.temperature = 0;
    r.stop.max_tokens = most;
    r.stop.ignore_eos = true;
    r.sink = reader.sink;
    return r;
  }

  fs::path dumps_;
};

// Prompts of less than a slice, of several, and of one token, at once: prefill, mixed steps and recorded
// ones.
TEST_F(CudaEngine, AnswersAsTheCpuBackendDoes) {
  std::vector<std::vector<int32_t>> answers[2];
  for (const bool cuda : {false, true}) {
    const auto engine = start(options(cuda ? "cuda" : "cpu", DType::f32));
    ASSERT_TRUE(engine);
    EXPECT_EQ(engine->info().backend, cuda ? "cuda" : "cpu");
    std::vector<std::unique_ptr<Reader>> readers;
    for (const int64_t prompt : {20, 70, 1}) {
      readers.push_back(std::make_unique<Reader>());
      ASSERT_TRUE(engine->submit(request(*readers.back(), static_cast<int32_t>(prompt), prompt, 5)).ok());
    }
    for (auto& r : readers) {
      ASSERT_TRUE(r->read());
      EXPECT_EQ(r->end->reason, FinishReason::length);
      answers[cuda ? 1 : 0].push_back(r->tokens);
    }
  }
  EXPECT_EQ(answers[0], answers[1]);
}

// Memory of the device against the ledger: what cannot fit is refused before anything is placed, and what
// somebody else takes meanwhile is told. (That the two agree otherwise is part of the test below.)
TEST_F(CudaEngine, TellsWhenTheDeviceHoldsMoreThanTheLedgerSays) {
  EngineOptions o = options("cuda", DType::bf16);
  emulation::set_device_memory(int64_t{300} << 20);
  const auto refused = Engine::start(o, std::vector<bool>(352, true));
  emulation::set_device_memory(int64_t{8} << 30);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("available on the device"), std::string::npos)
      << refused.error().message;

  int64_t taken = 0;
  o.progress = [&](double, std::string_view what) {  // weights are read once the device was looked at
    if (taken == 0 && what.starts_with("reading weights"))
      emulation::take_device_memory(taken = int64_t{1} << 30);
  };
  ::testing::internal::CaptureStdout();
  const bool started = start(o) != nullptr;
  const std::string log = ::testing::internal::GetCapturedStdout();
  emulation::take_device_memory(-taken);
  EXPECT_TRUE(started);
  EXPECT_NE(log.find("the ledger promised"), std::string::npos) << log;
}

// An error of the device after start (design §6): wherever in a step a kernel breaks it, whether its launch
// was replayed or not.
TEST_F(CudaEngine, AKernelThatFailsEndsTheEngineWithADumpAndEveryStreamWithAnError) {
  ::testing::internal::CaptureStdout();
  const auto engine = start(options("cuda", DType::bf16));
  const std::string log = ::testing::internal::GetCapturedStdout();
  ASSERT_TRUE(engine);
  EXPECT_NE(log.find("recorded 3 decode steps"), std::string::npos) << log;
  EXPECT_EQ(log.find("the ledger promised"), std::string::npos) << log;
  std::vector<std::unique_ptr<Reader>> readers;
  for (int32_t i = 0; i < 3; ++i) {  // two decode, one waits to be prefilled
    readers.push_back(std::make_unique<Reader>());
    ASSERT_TRUE(engine->submit(request(*readers.back(), i + 1, i == 2 ? 80 : 10 + i, 300)).ok());
    const bool running = i != 1 || (readers[0]->read(2) && readers[1]->read(1));
    ASSERT_TRUE(running);
    if (i == 1) fault::arm("cuda.kernel", 100);
  }
  for (auto& r : readers) {
    ASSERT_TRUE(r->read());
    EXPECT_EQ(r->end->reason, FinishReason::error);
    EXPECT_EQ(r->ends, 1);
    EXPECT_EQ(error_of(*r->end).code, ErrorCode::internal);
  }
  EXPECT_EQ(engine->status().health, Health::dead);
  Reader late;
  const Result<void> refused = engine->submit(request(late, 9, 5, 5));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);

  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(dumps_)) files.push_back(entry.path());
  ASSERT_EQ(files.size(), 1u);
  const auto dump = read_step_dump(files[0]);
  ASSERT_TRUE(dump.ok()) << dump.error().message;
  EXPECT_NE(dump->reason.find("CUDA failed in "), std::string::npos) << dump->reason;
  EXPECT_NE(dump->reason.find("illegal memory access"), std::string::npos) << dump->reason;
  EXPECT_EQ(dump->kv, DType::bf16);
  EXPECT_GE(dump->sequences.size(), 2u);
  // The step itself is sound: it runs where the device works.
  const auto replayed = replay_step(*dump, dump->model, 2);
  ASSERT_TRUE(replayed.ok()) << replayed.error().message;
  EXPECT_GE(replayed->drawn.size(), 2u);
}

}  // namespace
}  // namespace godwit::engine
