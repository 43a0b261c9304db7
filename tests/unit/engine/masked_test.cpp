// Requests whose output has rules: a grammar, a thinking budget. The small trained model answers under them.
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "base/fault.h"
#include "base/json.h"
#include "engine/engine.h"
#include "engine/reader.h"
#include "engine/replay.h"
#include "grammar/grammar.h"

namespace godwit::engine {
namespace {

using grammar::GrammarSpec;
using Content = GrammarSpec::Content;

const std::string kDir = std::string(GODWIT_SOURCE_DIR) + "/models/tiny-glm5next";
constexpr std::string_view kAsk =
    "[gMASK]<sop><|system|>Reasoning Effort: Max<|user|>What is 68 - 5?<|assistant|><think>";
constexpr std::string_view kPerson =
    R"({"type": "object", "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150}, "tags": {"type": "array", "items": {"enum": ["a", "b"]},
        "minItems": 1, "maxItems": 3}}, "required": ["name", "age", "tags"], "additionalProperties": false})";

class MaskedRequests : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    tokenizer_ = *tokenizer::Tokenizer::load(kDir + "/tokenizer.json");
    ids_ = tokenizer::find_control_ids(*tokenizer_);
  }

  std::unique_ptr<Engine> start(int64_t max_sequences = 64, const std::filesystem::path& dump_dir = {}) {
    EngineOptions options;
    options.model_dir = kDir;
    options.threads = 2;
    options.context = 2048;
    options.cache_tokens = 8192;
    options.max_sequences = max_sequences;
    options.dump_dir = dump_dir;
    std::vector<bool> has_token;
    for (int32_t id = 0; id < tokenizer_->size(); ++id) has_token.push_back(tokenizer_->has(id));
    auto engine = Engine::start(options, has_token);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    index_ = *grammar::TokenIndex::make(tokenizer_, static_cast<int32_t>((*engine)->info().vocabulary),
                                        (*engine)->info().stop_ids);
    return std::move(*engine);
  }

  std::shared_ptr<const grammar::Grammar> compiled(const GrammarSpec& spec) {
    auto grammar = grammar::compile(spec, index_);
    EXPECT_TRUE(grammar.ok()) << grammar.error().message;
    return *grammar;
  }
  std::shared_ptr<const grammar::Grammar> schema(std::string_view text) {
    GrammarSpec spec;
    spec.content = Content::json_schema;
    spec.schema = *parse_json(text);
    return compiled(spec);
  }
  std::shared_ptr<const grammar::Grammar> regex(std::string_view text) {
    GrammarSpec spec;
    spec.content = Content::regex;
    spec.regex = text;
    return compiled(spec);
  }

  Request request(Reader& reader, std::string_view prompt, std::shared_ptr<const grammar::Grammar> grammar,
                  float temperature = 0, uint64_t seed = 1) {
    Request r;
    r.prompt = *tokenizer_->encode(prompt);
    r.sampling.temperature = temperature;
    r.sampling.seed = seed;
    r.stop.max_tokens = 400;
    r.rules.grammar = std::move(grammar);
    r.rules.thinking = prompt.ends_with("<think>");
    r.rules.think_open = ids_.think_open;
    r.rules.think_close = ids_.think_close;
    r.sink = reader.sink;
    return r;
  }
  // The text after </think>, without the id that ended it.
  std::string answer(const Reader& reader) const {
    std::vector<int32_t> ids = reader.tokens;
    if (reader.end->reason == FinishReason::stop) ids.pop_back();
    auto close = std::find(ids.begin(), ids.end(), ids_.think_close);
    return tokenizer_->decode(std::vector<int32_t>(close == ids.end() ? ids.begin() : close + 1, ids.end()));
  }

  static inline std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  static inline tokenizer::ControlIds ids_;
  std::shared_ptr<const grammar::TokenIndex> index_;
};

void expect_person(const std::string& text) {
  const auto value = parse_json(text);
  ASSERT_TRUE(value.ok()) << text;
  ASSERT_TRUE(value->find("name") && value->find("age") && value->find("tags")) << text;
  EXPECT_EQ(value->as_object().size(), 3u);
  EXPECT_GE(value->find("age")->as_integer(), 0);
  EXPECT_LE(value->find("age")->as_integer(), 150);
  EXPECT_GE(value->find("tags")->as_array().size(), 1u);
}

TEST_F(MaskedRequests, AnswerUnderASchemaAfterThinkingGreedyAndSeeded) {
  auto engine = start();
  const auto grammar = schema(kPerson);
  for (uint64_t seed = 0; seed < 6; ++seed) {
    Reader reader;
    ASSERT_TRUE(engine->submit(request(reader, kAsk, grammar, seed == 0 ? 0.f : 1.f, seed)).ok());
    ASSERT_TRUE(reader.read());
    if (reader.end->reason == FinishReason::length && seed > 0) continue;  // it thought to the end
    ASSERT_EQ(reader.end->reason, FinishReason::stop);
    EXPECT_GE(std::count(reader.tokens.begin(), reader.tokens.end(), ids_.think_close), 1);
    expect_person(answer(reader));
  }
}

TEST_F(MaskedRequests, GiveTheSameTokensAloneInCompanyAndAfterPreemptions) {
  auto engine = start(4);
  const auto grammar = schema(kPerson);
  const std::string prompt(kAsk.substr(0, kAsk.size() - 7));
  std::vector<std::vector<int32_t>> alone;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Reader reader;
    ASSERT_TRUE(engine->submit(request(reader, prompt, grammar, 1.f, seed)).ok());
    ASSERT_TRUE(reader.read());
    ASSERT_EQ(reader.end->reason, FinishReason::stop);
    expect_person(answer(reader));
    alone.push_back(reader.tokens);
  }
  for (const bool disturbed : {false, true}) {
    if (disturbed) fault::arm("schedule.preempt", 5, 20);
    std::vector<std::unique_ptr<Reader>> readers;
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      readers.push_back(std::make_unique<Reader>());
      ASSERT_TRUE(engine->submit(request(*readers.back(), prompt, grammar, 1.f, seed)).ok());
    }
    for (size_t i = 0; i < readers.size(); ++i) {
      ASSERT_TRUE(readers[i]->read());
      EXPECT_EQ(readers[i]->tokens, alone[i]) << "seed " << i + 1 << (disturbed ? ", preempted" : "");
    }
    fault::disarm_all();
  }
  engine->drain(0);
  EXPECT_GT(engine->status().preemptions, 0u);
}

TEST_F(MaskedRequests, AResumedAnswerGoesOnInsideItsGrammar) {
  auto engine = start();
  const auto grammar = schema(kPerson);
  Reader whole;
  ASSERT_TRUE(engine->submit(request(whole, kAsk, grammar, 1.f, 3)).ok());
  ASSERT_TRUE(whole.read());
  ASSERT_GT(whole.tokens.size(), 12u);
  for (const size_t cut : {size_t{1}, whole.tokens.size() / 2, whole.tokens.size() - 2}) {
    Reader rest;
    Request r = request(rest, kAsk, grammar, 1.f, 3);
    const auto at = whole.tokens.begin() + static_cast<std::ptrdiff_t>(cut);
    r.forced.assign(whole.tokens.begin(), at);
    ASSERT_TRUE(engine->submit(std::move(r)).ok());
    ASSERT_TRUE(rest.read());
    EXPECT_EQ(rest.tokens, std::vector<int32_t>(at, whole.tokens.end()));
  }
  Reader broken;
  Request r = request(broken, kAsk, grammar);
  r.forced = {ids_.think_close, ids_.think_close};
  ASSERT_TRUE(engine->submit(std::move(r)).ok());
  ASSERT_TRUE(broken.read());
  EXPECT_EQ(broken.end->reason, FinishReason::error);
}

TEST_F(MaskedRequests, MinTokensPutsTheEndOffOnlyWhileThereIsMoreToSay) {
  auto engine = start();
  Reader longer, shorter;
  Request r = request(longer, "Say:", regex("(ab)+"));
  r.stop.min_tokens = 30;
  r.stop.max_tokens = 60;
  ASSERT_TRUE(engine->submit(std::move(r)).ok());
  ASSERT_TRUE(longer.read());
  EXPECT_GE(longer.tokens.size(), 30u);
  const std::string text = answer(longer);
  for (size_t i = 0; i < text.size(); ++i) ASSERT_EQ(text[i], i % 2 ? 'b' : 'a');

  r = request(shorter, "Say:", regex("yes|no"));
  r.stop.min_tokens = 30;
  ASSERT_TRUE(engine->submit(std::move(r)).ok());
  ASSERT_TRUE(shorter.read());
  EXPECT_EQ(shorter.end->reason, FinishReason::stop);
  EXPECT_TRUE(answer(shorter) == "yes" || answer(shorter) == "no") << answer(shorter);
}

TEST_F(MaskedRequests, MaxTokensLeavesAPrefix) {
  auto engine = start();
  Reader reader;
  Request r = request(reader, "Say:", regex("[0-9]{40}"));
  r.stop.max_tokens = 7;
  ASSERT_TRUE(engine->submit(std::move(r)).ok());
  ASSERT_TRUE(reader.read());
  EXPECT_EQ(reader.end->reason, FinishReason::length);
  EXPECT_EQ(answer(reader).find_first_not_of("0123456789"), std::string::npos);
}

TEST_F(MaskedRequests, BiasPenaltiesAndLogprobsSeeTheMaskedDistribution) {
  auto engine = start();
  Reader reader;
  Request r = request(reader, "Say:", regex("[abc]{20}"));
  r.sampling.top_logprobs = 20;
  r.sampling.frequency_penalty = 2;
  r.sampling.logit_bias = {{tokenizer_->id_of("Q"), 100.f}};
  ASSERT_TRUE(engine->submit(std::move(r)).ok());
  ASSERT_TRUE(reader.read());
  EXPECT_EQ(answer(reader).size(), 20u);
  EXPECT_EQ(answer(reader).find_first_not_of("abc"), std::string::npos);
  for (const TopLogprobs& top : reader.top) {
    double sum = 0;
    for (int32_t i = 0; i < top.count; ++i) sum += std::exp(top.logprobs[i]);
    EXPECT_LE(sum, 1.0001);
    EXPECT_TRUE(top.count == 20 || std::abs(sum - 1) < 1e-3) << "these are all that the mask allows: " << sum;
  }
}

TEST_F(MaskedRequests, AThinkingBudgetForcesTheCloseTag) {
  auto engine = start();
  Reader free;
  ASSERT_TRUE(engine->submit(request(free, kAsk, nullptr)).ok());
  ASSERT_TRUE(free.read());
  const auto natural =
      std::find(free.tokens.begin(), free.tokens.end(), ids_.think_close) - free.tokens.begin();
  ASSERT_GT(natural, 4);
  for (const int64_t budget : {int64_t{0}, int64_t{3}, natural + 5}) {
    for (const bool structured : {false, true}) {
      Reader reader;
      Request r = request(reader, kAsk, structured ? schema(kPerson) : nullptr);
      r.rules.thinking_budget = budget;
      ASSERT_TRUE(engine->submit(std::move(r)).ok());
      ASSERT_TRUE(reader.read());
      const auto closed =
          std::find(reader.tokens.begin(), reader.tokens.end(), ids_.think_close) - reader.tokens.begin();
      EXPECT_EQ(closed, std::min<int64_t>(budget, natural));
      EXPECT_EQ(reader.end->reason, FinishReason::stop);
      if (structured) expect_person(answer(reader));
    }
  }
}

TEST_F(MaskedRequests, ToolCallsHaveTheirArguments) {
  auto engine = start();
  GrammarSpec spec;
  spec.tools = {{"set_alarm", *parse_json(R"({"type": "object", "properties": {"hour": {"type": "integer",
      "minimum": 0, "maximum": 23}, "label": {"type": "string", "maxLength": 9}}, "required": ["hour"]})")}};
  spec.parallel_calls = false;
  const auto grammar = compiled(spec);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    Reader reader;
    Request r = request(reader, kAsk, grammar, seed == 0 ? 0.f : 1.f, seed);
    r.rules.tool_call_open = ids_.tool_call_open;
    r.rules.thinking_budget = 40;
    ASSERT_TRUE(engine->submit(std::move(r)).ok());
    ASSERT_TRUE(reader.read());
    ASSERT_EQ(reader.end->reason, FinishReason::stop);
    const std::string text = tokenizer_->decode(reader.tokens);
    const std::string call = "<tool_call>set_alarm<arg_key>";
    ASSERT_NE(text.find(call), std::string::npos) << text;
    EXPECT_NE(text.find("<arg_key>hour</arg_key><arg_value>"), std::string::npos) << text;
    EXPECT_EQ(std::count(reader.tokens.begin(), reader.tokens.end(), ids_.tool_call_close), 1) << text;
  }
}

TEST_F(MaskedRequests, AreBuriedWhenAStepDies) {
  auto engine = start();
  std::vector<std::unique_ptr<Reader>> readers;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    readers.push_back(std::make_unique<Reader>());
    Request r = request(*readers.back(), "Say:", regex("[a-z ]{1500}"), 1.f, seed);
    r.stop.max_tokens = 1500;
    ASSERT_TRUE(engine->submit(std::move(r)).ok());
    ASSERT_TRUE(readers.back()->read(2));
  }
  fault::arm("engine.step");
  for (auto& reader : readers) {
    ASSERT_TRUE(reader->read());
    EXPECT_EQ(reader->end->reason, FinishReason::error);
  }
  fault::disarm_all();
}

TEST_F(MaskedRequests, AStepThatDiedDrawsTheSameTokenAgain) {
  const std::filesystem::path dumps = std::filesystem::path(::testing::TempDir()) / "godwit-masked-dumps";
  const std::string prompt(kAsk.substr(0, kAsk.size() - 7));
  constexpr uint64_t kSeeds = 4;
  std::vector<std::vector<int32_t>> whole;
  {
    auto engine = start();
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      Reader reader;
      ASSERT_TRUE(engine->submit(request(reader, prompt, schema(kPerson), 1.5f, seed)).ok());
      ASSERT_TRUE(reader.read());
      whole.push_back(reader.tokens);
    }
  }
  int64_t others = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    std::filesystem::remove_all(dumps);
    std::filesystem::create_directories(dumps);
    auto engine = start(4, dumps);
    Reader reader;
    fault::arm("engine.step", static_cast<int64_t>(2 + 3 * seed));
    ASSERT_TRUE(engine->submit(request(reader, prompt, schema(kPerson), 1.5f, seed)).ok());
    ASSERT_TRUE(reader.read());
    fault::disarm_all();
    ASSERT_EQ(reader.end->reason, FinishReason::error);
    engine.reset();
    ASSERT_FALSE(std::filesystem::is_empty(dumps));
    auto dump = read_step_dump(std::filesystem::directory_iterator(dumps)->path());
    ASSERT_TRUE(dump.ok()) << dump.error().message;
    ASSERT_EQ(dump->masks.size(), 1u);
    const auto replayed = replay_step(*dump, kDir, 1);
    ASSERT_TRUE(replayed.ok()) << replayed.error().message;
    const size_t at = reader.tokens.size();
    ASSERT_LT(at, whole[seed - 1].size());
    EXPECT_EQ(replayed->drawn.at(0).id, whole[seed - 1][at]) << "seed " << seed;
    // What it would draw without its mask: at least once something else, or this proves nothing.
    auto unmasked = *dump;
    unmasked.plan.samples[0].mask = -1;
    const auto free = replay_step(unmasked, kDir, 1);
    ASSERT_TRUE(free.ok()) << free.error().message;
    others += free->drawn.at(0).id != whole[seed - 1][at];
    // A mask that does not fit is refused.
    dump->masks[0].push_back(1);
    EXPECT_FALSE(replay_step(*dump, kDir, 1).ok());
  }
  std::filesystem::remove_all(dumps);
  EXPECT_GT(others, 0);
}

}  // namespace
}  // namespace godwit::engine
