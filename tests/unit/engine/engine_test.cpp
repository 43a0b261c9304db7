// The real engine with the small trained model: what a server may rely on.
#include "engine/engine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <random>
#include <set>

#include "base/fault.h"
#include "engine/reader.h"
#include "weights/checkpoint.h"
#include "weights/inventory.h"

namespace godwit::engine {
namespace {

const std::string kModel = std::string(GODWIT_SOURCE_DIR) + "/models/random-glm5next";
constexpr int64_t kVocabulary = 320;  // ids below the model's control ids

std::unique_ptr<Engine> start(EngineOptions options = {}) {
  options.model_dir = kModel;
  options.threads = 2;
  if (options.context == 0) options.context = 2048;
  options.cache_tokens = std::max<int64_t>(options.context, 8192);
  auto engine = Engine::start(options, std::vector<bool>(352, true));
  EXPECT_TRUE(engine.ok()) << engine.error().message;
  return engine.ok() ? std::move(*engine) : nullptr;
}

Request request(Reader& reader, int64_t prompt, int64_t most, uint32_t seed = 1, float temperature = 0) {
  std::mt19937 random(seed);
  Request r;
  for (int64_t i = 0; i < prompt; ++i) r.prompt.push_back(static_cast<int32_t>(random() % kVocabulary));
  r.sampling.temperature = temperature;
  r.sampling.seed = seed;
  r.stop.max_tokens = most;
  r.stop.ignore_eos = true;
  r.sink = reader.sink;
  return r;
}

std::vector<int32_t> alone(Engine& engine, int64_t prompt, int64_t most, uint32_t seed, float temperature) {
  Reader reader;
  EXPECT_TRUE(engine.submit(request(reader, prompt, most, seed, temperature)).ok());
  EXPECT_TRUE(reader.read());
  return reader.tokens;
}

TEST(Engine, AnswersAndReportsTheCounts) {
  auto engine = start();
  Reader reader;
  ASSERT_TRUE(engine->submit(request(reader, 300, 20)).ok());
  ASSERT_TRUE(reader.read());
  EXPECT_EQ(reader.tokens.size(), 20u);
  ASSERT_TRUE(reader.start);
  EXPECT_EQ(reader.start->prompt_tokens, 300);
  EXPECT_EQ(reader.end->reason, FinishReason::length);
  EXPECT_EQ(reader.end->completion_tokens, 20);
  EXPECT_GT(reader.end->prefill_ns, 0);
  engine->drain(0);
  const Status status = engine->status();
  EXPECT_EQ(status.prompt_tokens, 300u);
  EXPECT_EQ(status.generated_tokens, 20u);
  EXPECT_EQ(status.finished, 1u);
}

TEST(Engine, TokensDoNotDependOnCompanyGreedyOrSeeded) {
  auto engine = start();
  const std::vector<std::pair<int64_t, float>> kinds = {{5, 0.f},  {130, 1.f}, {700, 0.7f},
                                                        {64, 1.f}, {65, 0.f},  {1000, 1.f}};
  std::vector<std::vector<int32_t>> want;
  for (size_t i = 0; i < kinds.size(); ++i)
    want.push_back(alone(*engine, kinds[i].first, 40, static_cast<uint32_t>(i + 1), kinds[i].second));
  std::vector<std::unique_ptr<Reader>> readers;
  for (size_t i = 0; i < kinds.size(); ++i) {
    readers.push_back(std::make_unique<Reader>());
    ASSERT_TRUE(
        engine
            ->submit(request(*readers[i], kinds[i].first, 40, static_cast<uint32_t>(i + 1), kinds[i].second))
            .ok());
  }
  for (size_t i = 0; i < kinds.size(); ++i) {
    ASSERT_TRUE(readers[i]->read());
    EXPECT_EQ(readers[i]->tokens, want[i]) << "request " << i;
  }
  EXPECT_NE(alone(*engine, 130, 40, 99, 1.f), want[1]) << "another seed should give other tokens";
}

TEST(Engine, AResumedRequestContinuesWhereAnotherReplicaStopped) {
  auto engine = start();
  const std::vector<int32_t> whole = alone(*engine, 100, 50, 3, 1.f);
  Reader reader;
  Request r = request(reader, 100, 50, 3, 1.f);
  r.forced.assign(whole.begin(), whole.begin() + 23);
  ASSERT_TRUE(engine->submit(std::move(r)).ok());
  ASSERT_TRUE(reader.read());
  EXPECT_EQ(reader.tokens, std::vector<int32_t>(whole.begin() + 23, whole.end()));
}

TEST(Engine, PenaltiesSurviveAResume) {
  auto engine = start();
  const auto with_penalties = [](Request r) {
    r.sampling.presence_penalty = 1.5f;
    r.sampling.frequency_penalty = 0.7f;
    r.sampling.repetition_penalty = 1.3f;
    return r;
  };
  Reader first, plain, second;
  ASSERT_TRUE(engine->submit(with_penalties(request(first, 90, 60, 4))).ok());
  ASSERT_TRUE(first.read());
  ASSERT_TRUE(engine->submit(request(plain, 90, 60, 4)).ok());
  ASSERT_TRUE(plain.read());
  EXPECT_NE(first.tokens, plain.tokens) << "the penalties did nothing";
  Request r = with_penalties(request(second, 90, 60, 4));
  r.forced.assign(first.tokens.begin(), first.tokens.begin() + 31);
  ASSERT_TRUE(engine->submit(std::move(r)).ok());
  ASSERT_TRUE(second.read());
  EXPECT_EQ(second.tokens, std::vector<int32_t>(first.tokens.begin() + 31, first.tokens.end()));
}

TEST(Engine, CancelEndsARequestAndFreesIt) {
  auto engine = start();
  Reader reader;
  ASSERT_TRUE(engine->submit(request(reader, 50, 1900)).ok());
  ASSERT_TRUE(reader.read(3));
  reader.sink->cancel();
  ASSERT_TRUE(reader.read());
  EXPECT_EQ(reader.end->reason, FinishReason::cancelled);
  engine->drain(0);
  EXPECT_EQ(engine->status().pages_used, 0);
  EXPECT_EQ(engine->status().slots_used, 0);
  EXPECT_EQ(engine->status().cancelled, 1u);
}

TEST(Engine, AReaderThatDoesNotReadPausesOnlyItself) {
  auto engine = start();
  Reader slow(8), quick;
  ASSERT_TRUE(engine->submit(request(slow, 20, 200, 5)).ok());
  ASSERT_TRUE(engine->submit(request(quick, 20, 200, 5)).ok());
  ASSERT_TRUE(quick.read());
  EXPECT_EQ(quick.tokens.size(), 200u);
  ASSERT_TRUE(slow.read());
  EXPECT_EQ(slow.tokens, quick.tokens);
}

// Asks for a flush and waits for its answer.
Result<Flushed> flush(Engine& engine) {
  auto answer = std::make_shared<std::promise<Result<Flushed>>>();
  auto future = answer->get_future();
  engine.flush_cache([answer](const Result<Flushed>& flushed) { answer->set_value(flushed); });
  if (future.wait_for(std::chrono::seconds(30)) == std::future_status::ready) return future.get();
  return Error{ErrorCode::internal, "no answer", ""};
}

TEST(Engine, AFlushForgetsWhatNobodyReadsAndSaysHowMuch) {
  auto engine = start();
  Reader first, second, held, third;
  ASSERT_TRUE(engine->submit(request(first, 400, 4)).ok());
  ASSERT_TRUE(first.read());
  ASSERT_TRUE(engine->submit(request(second, 400, 4)).ok());
  ASSERT_TRUE(second.read());
  EXPECT_EQ(second.start->cached_tokens, 384);
  EXPECT_EQ(second.start->miss, MissReason::none);
  // A running request keeps what it holds: its own prompt is another one.
  ASSERT_TRUE(engine->submit(request(held, 300, 1500, 2)).ok());
  ASSERT_TRUE(held.read(3));
  const auto flushed = flush(*engine);
  ASSERT_TRUE(flushed.ok()) << flushed.error().message;
  EXPECT_GE(flushed->pages, 6);
  EXPECT_GE(flushed->snapshots, 1);
  EXPECT_EQ(flushed->host_bytes, 0) << "there is no host tier";
  ASSERT_TRUE(engine->submit(request(third, 400, 4)).ok());
  ASSERT_TRUE(third.read());
  EXPECT_EQ(third.start->cached_tokens, 0);
  EXPECT_EQ(third.tokens, first.tokens);
  held.sink->cancel();
  ASSERT_TRUE(held.read());
  EXPECT_GE(engine->status().misses[static_cast<size_t>(MissReason::evicted)], 1u);
  const auto again = flush(*engine);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(engine->status().pages_cached, 0);
}

TEST(Engine, AFlushOfADeadEngineIsRefused) {
  auto engine = start();
  Reader reader;
  fault::arm("engine.step");
  ASSERT_TRUE(engine->submit(request(reader, 20, 5)).ok());
  ASSERT_TRUE(reader.read());
  fault::disarm_all();
  const auto refused = flush(*engine);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
}

TEST(Engine, ADeadlineEndsARequestInWordsWithNumbers) {
  auto engine = start();
  Reader reader;
  Request r = request(reader, 20, 2000);
  r.deadline_ns = SteadyClock().now_ns() + 50'000'000;
  ASSERT_TRUE(engine->submit(std::move(r)).ok());
  ASSERT_TRUE(reader.read());
  if (reader.end->reason != FinishReason::length) {  // a machine that draws 2,000 tokens in 50 ms
    EXPECT_EQ(reader.end->failure, Failure::deadline);
    const Error error = error_of(*reader.end);
    EXPECT_EQ(error.code, ErrorCode::request_timeout);
    EXPECT_NE(error.message.find(std::to_string(reader.tokens.size()) + " tokens"), std::string::npos)
        << error.message;
  }
  EXPECT_EQ(reader.ends, 1);
}

TEST(Engine, RefusesWhatCanNeverFitAndWhatIsTooMuchNow) {
  EngineOptions options;
  options.context = 256;
  options.max_sequences = 2;
  options.max_waiting = 3;
  auto engine = start(options);
  Reader reader;
  const auto never = engine->submit(request(reader, 250, 10));
  ASSERT_FALSE(never.ok());
  EXPECT_EQ(never.error().code, ErrorCode::context_length);
  EXPECT_NE(never.error().message.find("maximum context length is 256 tokens"), std::string::npos);

  std::vector<std::unique_ptr<Reader>> readers;
  int refused = 0;
  for (int i = 0; i < 12; ++i) {
    readers.push_back(std::make_unique<Reader>());
    const auto r = engine->submit(request(*readers.back(), 100, 150));
    if (r.ok()) continue;
    EXPECT_EQ(r.error().code, ErrorCode::overloaded);
    readers.pop_back();
    ++refused;
  }
  EXPECT_GT(refused, 0);
  for (auto& r : readers) {
    ASSERT_TRUE(r->read());
    EXPECT_EQ(r->end->reason, FinishReason::length);
  }
}

TEST(Engine, LogprobsAreThoseOfTheDistribution) {
  auto engine = start();
  Reader reader;
  Request r = request(reader, 30, 10);
  r.sampling.top_logprobs = 3;
  ASSERT_TRUE(engine->submit(std::move(r)).ok());
  ASSERT_TRUE(reader.read());
  ASSERT_EQ(reader.top.size(), 10u);
  for (size_t i = 0; i < reader.top.size(); ++i) {
    EXPECT_EQ(reader.top[i].count, 3);
    EXPECT_EQ(reader.top[i].ids[0], reader.tokens[i]) << "greedy takes the first alternative";
    EXPECT_FLOAT_EQ(reader.top[i].logprobs[0], reader.logprobs[i]);
    EXPECT_LT(reader.top[i].logprobs[1], reader.top[i].logprobs[0]);
  }
}

// log P of ids 1 … of the prompt, `top` alternatives each.
Reader scored(Engine& engine, const std::vector<int32_t>& prompt, size_t sink = 4096) {
  Reader reader(sink);
  Request r;
  r.prompt = prompt;
  r.sampling.temperature = 0;
  r.sampling.top_logprobs = 2;
  r.stop.max_tokens = 1;
  r.stop.ignore_eos = true;
  r.prompt_logprobs = true;
  r.sink = reader.sink;
  EXPECT_TRUE(engine.submit(std::move(r)).ok());
  EXPECT_TRUE(reader.read());
  return reader;
}

void expect_same_scores(const Reader& a, const Reader& b) {
  ASSERT_EQ(a.scores.size(), b.scores.size());
  for (size_t i = 0; i < a.scores.size(); ++i) {
    ASSERT_EQ(a.scores[i].id, b.scores[i].id) << i;
    ASSERT_EQ(a.scores[i].logprob, b.scores[i].logprob) << i;
  }
}

TEST(Engine, ScoresOfAPromptAreWhatDecodingWouldSay) {
  auto engine = start();
  Reader drawn;
  Request r = request(drawn, 150, 120, 7);
  r.sampling.top_logprobs = 2;
  std::vector<int32_t> text = r.prompt;
  ASSERT_TRUE(engine->submit(std::move(r)).ok());
  ASSERT_TRUE(drawn.read());
  text.insert(text.end(), drawn.tokens.begin(), drawn.tokens.end());
  const Reader scores = scored(*engine, text);
  ASSERT_EQ(scores.scores.size(), text.size() - 1);
  ASSERT_EQ(scores.tokens.size(), 1u);
  for (size_t i = 0; i < scores.scores.size(); ++i) ASSERT_EQ(scores.scores[i].id, text[i + 1]);
  // Prompt rows and decode rows use two families of arithmetic (design §7).
  for (size_t i = 0; i < drawn.tokens.size(); ++i)
    EXPECT_NEAR(scores.scores[149 + i].logprob, drawn.logprobs[i], 2e-3) << i;
}

TEST(Engine, ScoresDependOnNothingElse) {
  auto engine = start();
  std::mt19937 random(3);
  std::vector<int32_t> prompt;
  for (int i = 0; i < 900; ++i) prompt.push_back(static_cast<int32_t>(random() % kVocabulary));
  const Reader whole = scored(*engine, prompt);
  EXPECT_EQ(whole.start->cached_tokens, 0);
  {
    SCOPED_TRACE("a second time: nothing of it comes from the cache, nor went there");
    const Reader again = scored(*engine, prompt);
    EXPECT_EQ(again.start->cached_tokens, 0);
    EXPECT_EQ(again.start->miss, MissReason::disabled);
    expect_same_scores(whole, again);
  }
  {
    SCOPED_TRACE("a reader with little room");
    expect_same_scores(whole, scored(*engine, prompt, 100));
  }
  {
    SCOPED_TRACE("slices of one page, in company, preempted");
    EngineOptions options;
    options.prefill_tokens = 64;
    options.max_sequences = 3;
    auto other = start(options);
    Reader company;
    ASSERT_TRUE(other->submit(request(company, 400, 300)).ok());
    fault::arm("schedule.preempt", 4, 6);
    expect_same_scores(whole, scored(*other, prompt));
    fault::disarm_all();
    ASSERT_TRUE(company.read());
  }
  for (const size_t length : {1u, 2u, 63u, 64u, 65u, 128u})
    EXPECT_EQ(
        scored(*engine, {prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(length)}).scores.size(),
        length - 1);
}

TEST(Engine, ARowWithoutFiniteLogitsFailsItsRequestAlone) {
  auto engine = start();
  Reader bad, good;
  fault::arm("engine.nan", 0, 1);
  ASSERT_TRUE(engine->submit(request(bad, 20, 30, 6)).ok());
  ASSERT_TRUE(bad.read());
  fault::disarm_all();
  EXPECT_EQ(bad.end->reason, FinishReason::error);
  EXPECT_EQ(bad.end->failure, Failure::not_finite);
  EXPECT_EQ(error_of(*bad.end).code, ErrorCode::internal);
  ASSERT_TRUE(engine->submit(request(good, 20, 30, 6)).ok());
  ASSERT_TRUE(good.read());
  EXPECT_EQ(good.end->reason, FinishReason::length);
}

TEST(Engine, AStepThatDiesEndsEveryStreamAndReadiness) {
  auto engine = start();
  std::vector<std::unique_ptr<Reader>> readers;
  for (int i = 0; i < 3; ++i) {
    readers.push_back(std::make_unique<Reader>());
    ASSERT_TRUE(engine->submit(request(*readers.back(), 20, 2000, static_cast<uint32_t>(i))).ok());
    ASSERT_TRUE(readers.back()->read(2));
  }
  fault::arm("engine.step");
  for (auto& r : readers) {
    ASSERT_TRUE(r->read());
    EXPECT_EQ(r->end->reason, FinishReason::error);
    EXPECT_EQ(r->ends, 1);
  }
  fault::disarm_all();
  EXPECT_EQ(engine->status().health, Health::dead);
  Reader late;
  const auto refused = engine->submit(request(late, 5, 5));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
}

TEST(Engine, DrainLetsRequestsFinishUntilTheDeadline) {
  auto engine = start();
  Reader short_one, long_one;
  ASSERT_TRUE(engine->submit(request(short_one, 20, 5)).ok());
  ASSERT_TRUE(engine->submit(request(long_one, 20, 2000)).ok());
  ASSERT_TRUE(long_one.read(1));
  engine->drain(SteadyClock().now_ns() + 100'000'000);
  ASSERT_TRUE(short_one.read());
  ASSERT_TRUE(long_one.read());
  EXPECT_EQ(short_one.end->reason, FinishReason::length);
  EXPECT_TRUE(long_one.end->reason == FinishReason::error || long_one.tokens.size() == 2000u);
  Reader late;
  EXPECT_FALSE(engine->submit(request(late, 5, 5)).ok());
}

// A damaged value of any part is a refusal at load, not NaN in somebody's answer.
TEST(Engine, ValuesThatAreNoNumbersAreRefusedByTensor) {
  namespace fs = std::filesystem;
  const fs::path dir = fs::path(testing::TempDir()) / ("godwit-damaged-" + std::to_string(getpid()));
  fs::remove_all(dir);
  fs::copy(kModel, dir);
  const auto config = read_model_config(dir);
  const auto sound = Checkpoint::open(dir);
  ASSERT_TRUE(config.ok() && sound.ok());
  std::set<Component> tried;
  for (const TensorSpec& tensor : make_inventory(*config)) {
    if (tensor.nextn || tensor.component == Component::vision || !tried.insert(tensor.component).second)
      continue;
    const TensorRef& ref = *sound->find(tensor.name);
    const auto size = static_cast<size_t>(size_of(ref.dtype));
    const fs::path file = dir / ref.file;
    // A new file each time: the old one is mapped.
    fs::remove(file);
    fs::copy(fs::path(kModel) / ref.file, file);
    fs::permissions(file, fs::perms::owner_write, fs::perm_options::add);
    std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
        .seekp(static_cast<std::streamoff>(ref.offset + ref.bytes - size))
        .write("\xff\xff\xff\xff", static_cast<std::streamsize>(size));
    EngineOptions options;
    options.model_dir = dir;
    options.threads = 1;
    options.context = 256;
    options.cache_tokens = 256;
    const auto engine = Engine::start(options, {});
    ASSERT_FALSE(engine.ok()) << tensor.name;
    EXPECT_EQ(engine.error().code, ErrorCode::data_refused);
    EXPECT_NE(engine.error().message.find(tensor.name), std::string::npos) << engine.error().message;
  }
  EXPECT_GE(tried.size(), 5u);
  fs::remove_all(dir);
}

TEST(Engine, TellsHowFarReadingIsAndStopsWhenAsked) {
  EngineOptions options;
  double last = 0;
  int told = 0;
  options.progress = [&](double fraction, std::string_view what) {
    EXPECT_GE(fraction, last);
    last = fraction;
    told += what.starts_with("reading weights: 1 of 1 shards") ? 1 : 0;
  };
  ASSERT_NE(start(options), nullptr);
  EXPECT_EQ(last, 1);
  EXPECT_GE(told, 1);

  std::stop_source stop;
  stop.request_stop();
  options = {};
  options.model_dir = kModel;
  options.context = 2048;
  options.stop = stop.get_token();
  const auto stopped = Engine::start(options, {});
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::unavailable);
}

TEST(Engine, ABadDirectoryIsRefusedWithItsReason) {
  EngineOptions options;
  options.model_dir = std::string(GODWIT_SOURCE_DIR) + "/docs";
  const auto engine = Engine::start(options, {});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, ErrorCode::data_refused);
  options.model_dir = kModel;
  options.context = 1 << 20;
  const auto too_long = Engine::start(options, {});
  ASSERT_FALSE(too_long.ok());
  EXPECT_EQ(too_long.error().code, ErrorCode::usage);
}

}  // namespace
}  // namespace godwit::engine
