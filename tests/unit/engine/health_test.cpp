// What a dying or stuck engine does: readiness, streams, the dump, and that the dump runs again.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>

#include "base/fault.h"
#include "engine/engine.h"
#include "engine/reader.h"
#include "engine/replay.h"

namespace godwit::engine {
namespace {

namespace fs = std::filesystem;

const std::string kModel = std::string(GODWIT_SOURCE_DIR) + "/models/random-glm5next";

class Health : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    dumps_ = fs::path(::testing::TempDir()) / ("godwit-health-" + std::string(test->name()));
    fs::remove_all(dumps_);
    fs::create_directories(dumps_);
  }
  void TearDown() override {
    fault::disarm_all();
    fs::remove_all(dumps_);
  }

  std::unique_ptr<Engine> start(int64_t step_deadline_s = 0,
                                const LedgerSizes& sizes = {.context = 2048, .cache_tokens = 8192}) {
    EngineOptions options;
    static_cast<LedgerSizes&>(options) = sizes;
    options.model_dir = kModel;
    options.threads = 2;
    options.dump_dir = dumps_;
    options.build = "test build";
    options.step_deadline_s = step_deadline_s;
    options.kv = kv_;
    auto engine = Engine::start(options, std::vector<bool>(352, true));
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine.ok() ? std::move(*engine) : nullptr;
  }

  static Request request(Reader& reader, int64_t prompt, int64_t most, uint32_t seed) {
    std::mt19937 random(seed);
    Request r;
    for (int64_t i = 0; i < prompt; ++i) r.prompt.push_back(static_cast<int32_t>(random() % 320));
    r.id = "req-" + std::to_string(seed);
    r.sampling.temperature = 1;
    r.sampling.seed = seed;
    r.sampling.presence_penalty = 0.5f;
    r.stop.max_tokens = most;
    r.stop.ignore_eos = true;
    r.sink = reader.sink;
    return r;
  }

  std::vector<fs::path> dumps() const {
    std::vector<fs::path> out;
    for (const auto& entry : fs::directory_iterator(dumps_)) out.push_back(entry.path());
    return out;
  }

  void a_step_dies_and_is_replayed();

  fs::path dumps_;
  std::optional<DType> kv_;
};

TEST_F(Health, AStepThatDiedIsWrittenDownAndDrawsTheSameTokensAgain) {
  a_step_dies_and_is_replayed();
}
TEST_F(Health, SoIsAStepOverFp8Caches) {
  kv_ = DType::f8_e4m3;
  a_step_dies_and_is_replayed();
}

void Health::a_step_dies_and_is_replayed() {
  auto engine = start();
  std::vector<std::unique_ptr<Reader>> whole, cut;
  for (uint32_t i = 0; i < 3; ++i) {  // one still in its prompt when the step dies
    whole.push_back(std::make_unique<Reader>());
    ASSERT_TRUE(engine->submit(request(*whole[i], i == 2 ? 1000 : 70 + i, 60, i + 1)).ok());
    ASSERT_TRUE(whole[i]->read());
  }
  engine = start();
  for (uint32_t i = 0; i < 2; ++i) {
    cut.push_back(std::make_unique<Reader>());
    ASSERT_TRUE(engine->submit(request(*cut[i], 70 + i, 60, i + 1)).ok());
  }
  for (auto& r : cut) ASSERT_TRUE(r->read(10));
  cut.push_back(std::make_unique<Reader>());
  fault::arm("engine.step", 2);
  ASSERT_TRUE(engine->submit(request(*cut[2], 1000, 60, 3)).ok());
  for (auto& r : cut) {
    ASSERT_TRUE(r->read());
    EXPECT_EQ(r->end->reason, FinishReason::error);
    EXPECT_EQ(error_of(*r->end).code, ErrorCode::internal);
  }
  EXPECT_EQ(engine->status().health, godwit::engine::Health::dead);

  ASSERT_EQ(dumps().size(), 1u);
  struct stat info {};
  ASSERT_EQ(stat(dumps()[0].c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
  const auto dump = read_step_dump(dumps()[0]);
  ASSERT_TRUE(dump.ok()) << dump.error().message;
  EXPECT_EQ(dump->build, "test build");
  EXPECT_EQ(dump->kv, kv_.value_or(DType::f32));
  EXPECT_EQ(dump->reason, "fault point engine.step");
  EXPECT_GE(dump->sequences.size(), 2u);
  const auto replayed = replay_step(*dump, dump->model, 1);
  ASSERT_TRUE(replayed.ok()) << replayed.error().message;
  size_t next = 0, compared = 0;
  for (const schedule::PlanSequence& p : dump->plan.sequences) {
    if (p.sampled_rows == 0) continue;
    const sample::Sampled& d = replayed->drawn[next++];
    for (const StepDump::Sequence& s : dump->sequences) {
      if (s.number != p.request) continue;
      const size_t index = static_cast<size_t>(std::stoi(s.request_id.substr(4))) - 1;
      const size_t at = s.tokens.size() - static_cast<size_t>(s.prompt_tokens);
      EXPECT_EQ(d.id, whole[index]->tokens[at]) << s.request_id;
      ++compared;
    }
  }
  EXPECT_GE(compared, 2u) << "nothing was compared";

  // The steps that led there, as they were sliced: the same state, the same tokens.
  ASSERT_GE(dump->steps.size(), 8u);
  EXPECT_EQ(dump->steps.back().step, dump->plan.step);
  EXPECT_EQ(dump->steps.back().took_ns, 0) << "it did not end";
  EXPECT_GT(dump->steps.front().took_ns, 0);
  for (const int64_t steps : {6, 64}) {
    const auto longer = replay_step(*dump, dump->model, 1, steps);
    ASSERT_TRUE(longer.ok()) << longer.error().message;
    EXPECT_GT(longer->replayed_steps, 3);
    EXPECT_LT(longer->rebuilt_rows, replayed->rebuilt_rows);
    ASSERT_EQ(longer->drawn.size(), replayed->drawn.size());
    for (size_t i = 0; i < longer->drawn.size(); ++i) EXPECT_EQ(longer->drawn[i].id, replayed->drawn[i].id);
  }
}

TEST_F(Health, ADumpRecordsWhatWentToTheHostAndCameBack) {
  auto engine = start(0, {.context = 2048, .cache_tokens = 2048, .host_cache = 64 << 20});
  Reader first, second, again, back, cut;
  ASSERT_TRUE(engine->submit(request(first, 900, 4, 1)).ok());
  ASSERT_TRUE(first.read());
  ASSERT_TRUE(engine->submit(request(second, 1900, 4, 2)).ok());  // pushes the first out
  ASSERT_TRUE(second.read());
  ASSERT_TRUE(engine->submit(request(again, 1900, 4, 2)).ok());
  ASSERT_TRUE(again.read());
  ASSERT_EQ(again.start->cached_tokens, 1856);
  ASSERT_TRUE(engine->submit(request(back, 900, 4, 1)).ok());
  ASSERT_TRUE(back.read());
  ASSERT_EQ(back.start->cached_tokens, 896);
  fault::arm("engine.step", 6);
  ASSERT_TRUE(engine->submit(request(cut, 900, 60, 1)).ok());
  ASSERT_TRUE(cut.read());
  ASSERT_EQ(dumps().size(), 1u);
  const auto dump = read_step_dump(dumps()[0]);
  ASSERT_TRUE(dump.ok()) << dump.error().message;
  int64_t out = 0, in = 0, restores = 0, saves = 0;
  for (const StepRecord& r : dump->steps) {
    EXPECT_EQ(r.all_moves, static_cast<int64_t>(r.moves.size()));
    for (const cache::Move& m : r.moves) ++(m.way == cache::Move::Way::out ? out : in);
    restores += static_cast<int64_t>(r.restores.size());
    saves += static_cast<int64_t>(r.saves.size());
  }
  EXPECT_GE(out, 15) << "14 pages and a snapshot left";
  EXPECT_GE(in, 15);
  EXPECT_GE(restores, 1) << "the same prompt again began with a hit";
  EXPECT_GE(saves, 2);
  const auto replayed = replay_step(*dump, dump->model, 1, 3);
  ASSERT_TRUE(replayed.ok()) << replayed.error().message;
  EXPECT_EQ(replayed->replayed_steps, 3);
}

TEST_F(Health, AStuckStepIsFoundByTheWatchdogAndEndsEveryStream) {
  auto engine = start(1);
  Reader reader, queued;
  ASSERT_TRUE(engine->submit(request(reader, 20, 1000, 1)).ok());
  ASSERT_TRUE(reader.read(2));
  fault::arm("engine.stall", 0, -1);
  ASSERT_TRUE(engine->submit(request(queued, 20, 10, 2)).ok());
  const auto before = std::chrono::steady_clock::now();
  ASSERT_TRUE(reader.read());
  ASSERT_TRUE(queued.read());
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(60));
  EXPECT_EQ(reader.end->reason, FinishReason::error);
  EXPECT_EQ(queued.end->reason, FinishReason::error);
  // The streams hear of it before the counts are published.
  Status status = engine->status();
  for (int i = 0; i < 6000 && status.running + status.waiting > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    status = engine->status();
  }
  EXPECT_EQ(status.health, godwit::engine::Health::dead);
  EXPECT_EQ(status.pages_used, 0);
  EXPECT_EQ(status.slots_used, 0);
  EXPECT_EQ(dumps().size(), 1u);
  fault::disarm_all();  // the step ends after all: nothing of it may count
  engine.reset();
  EXPECT_EQ(reader.ends, 1);
}

TEST_F(Health, WhileAStepIsStuckTheWorkCountsAsPendingAndProgressStands) {
  auto engine = start();
  Reader reader;
  fault::arm("engine.stall", 0, -1);
  ASSERT_TRUE(engine->submit(request(reader, 20, 5, 1)).ok());
  const auto silent_ns = [&] { return SteadyClock().now_ns() - engine->status().last_progress_ns; };
  for (int i = 0; i < 6000 && silent_ns() < 200'000'000; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const Status stuck = engine->status();
  EXPECT_EQ(stuck.health, godwit::engine::Health::ready) << "without a deadline nobody is declared dead";
  EXPECT_EQ(stuck.running + stuck.waiting, 1);
  EXPECT_GT(SteadyClock().now_ns() - stuck.last_progress_ns, 150'000'000);
  fault::disarm_all();
  ASSERT_TRUE(reader.read());
  EXPECT_EQ(reader.end->reason, FinishReason::length);
  EXPECT_GT(engine->status().last_progress_ns, stuck.last_progress_ns);
}

TEST_F(Health, AStreamWhoseReaderSleepsIsNoStall) {
  auto engine = start();
  Reader slow(4);
  ASSERT_TRUE(engine->submit(request(slow, 20, 100, 1)).ok());
  while (slow.sink->room() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const Status status = engine->status();
  EXPECT_EQ(status.running + status.waiting, 1);
  // Long after the last step that could run, the engine still counts as alive.
  Status later = status;
  for (int i = 0; i < 6000 && later.last_progress_ns == status.last_progress_ns; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    later = engine->status();
  }
  EXPECT_GT(later.last_progress_ns, status.last_progress_ns);
  ASSERT_TRUE(slow.read());
  EXPECT_EQ(slow.tokens.size(), 100u);
}

// A file system that takes no more; the limit of a file's size stands for it.
TEST_F(Health, ADumpThatDoesNotFitLeavesNothingBehindAndStreamsStillEnd) {
  auto engine = start();
  Reader reader;
  ASSERT_TRUE(engine->submit(request(reader, 200, 60, 1)).ok());
  ASSERT_TRUE(reader.read(5));
  const auto before = signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{100, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  fault::arm("engine.step");
  const bool ended = reader.read();
  engine.reset();  // the dump may be written after the streams have ended
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, before);
  ASSERT_TRUE(ended);
  EXPECT_EQ(reader.end->reason, FinishReason::error);
  EXPECT_TRUE(dumps().empty());
}

TEST_F(Health, ADumpThatWasTamperedWithIsRefused) {
  auto engine = start();
  Reader reader;
  ASSERT_TRUE(engine->submit(request(reader, 200, 60, 1)).ok());
  ASSERT_TRUE(reader.read(5));
  fault::arm("engine.step");
  ASSERT_TRUE(reader.read());
  ASSERT_EQ(dumps().size(), 1u);
  const auto good = read_step_dump(dumps()[0]);
  ASSERT_TRUE(good.ok());
  const auto refused = [&](auto&& change) {
    StepDump bad = *good;
    change(bad);
    const auto replayed = replay_step(bad, kModel, 1, 8);
    return !replayed.ok() && replayed.error().code == ErrorCode::data_refused;
  };
  EXPECT_TRUE(refused([](StepDump& d) { d.plan.pages[0] = 1 << 20; }));
  EXPECT_TRUE(refused([](StepDump& d) { d.plan.ids[0] = -5; }));
  EXPECT_TRUE(refused([](StepDump& d) { d.plan.sequences[0].rows.slot = 100000; }));
  EXPECT_TRUE(refused([](StepDump& d) { d.plan.sequences[0].rows.first = 1'000'000; }));
  EXPECT_TRUE(refused([](StepDump& d) { d.plan.samples.clear(); }));
  EXPECT_TRUE(refused([](StepDump& d) { d.sequences.clear(); }));
  EXPECT_TRUE(refused([](StepDump& d) {
    kernels::Sequence& rows = d.steps[d.steps.size() - 2].sequences[0].rows;
    rows.rows += static_cast<int32_t>(rows.first) + 3;  // ends where it ended
    rows.first = -3;
  }));
  EXPECT_TRUE(refused(
      [](StepDump& d) { d.steps[d.steps.size() - 2].sequences[0].rows.kind = kernels::RowKind::prefill; }));
  const auto none = read_step_dump(kModel + "/config.json");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::data_refused);
}

}  // namespace
}  // namespace godwit::engine
