// Whatever a model wants to say, what it says under a schema is valid: random schemas, many at once, greedy
// and seeded, with the small trained model and with the odd random one, whose tokenizer is made up here.
#include <gtest/gtest.h>

#include "../unit/grammar/fixtures.h"
#include "../unit/tokenizer/sample.h"
#include "base/fault.h"
#include "engine/engine.h"
#include "engine/reader.h"

namespace godwit::engine {
namespace {

using grammar::test::random_schema;
using grammar::test::violation;

constexpr unsigned kSchemas = 120;
constexpr size_t kAtOnce = 24;
constexpr int64_t kMostTokens = 500;

struct World {
  std::string name;  // of the model's directory
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
};

World tiny() {
  const std::string dir = std::string(GODWIT_SOURCE_DIR) + "/models/tiny-glm5next";
  return {"tiny-glm5next", *tokenizer::Tokenizer::load(dir + "/tokenizer.json")};
}

// Bytes, tokens across JSON's punctuation, and the ids that end a generation where config.json says.
World odd() {
  tokenizer::Sample sample;
  for (const char a : std::string_view("{[\",:}]\\"))
    for (const char b : std::string_view("\"{[]} 1a")) sample.extra_tokens.push_back({a, b});
  for (const char* text :
       {"<|endoftext|>", "<|user|>", "<|observation|>", "<think>", "</think>", "<tool_call>"})
    sample.added.emplace_back(text, true);
  return {"random-glm5next", *tokenizer::Tokenizer::from_json(sample.json())};
}

struct Document {
  Json schema;
  std::shared_ptr<const grammar::Grammar> grammar;
  Reader reader;
};

class StructuredOutput : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    world_ = GetParam() ? tiny() : odd();
    EngineOptions options;
    options.model_dir = std::string(GODWIT_SOURCE_DIR) + "/models/" + world_.name;
    options.threads = 2;
    options.context = 1024;
    options.cache_tokens = 8192;
    options.max_sequences = 16;
    std::vector<bool> has_token;
    for (int32_t id = 0; id < world_.tokenizer->size(); ++id) has_token.push_back(world_.tokenizer->has(id));
    auto engine = Engine::start(options, has_token);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    engine_ = std::move(*engine);
    const Info& info = engine_->info();
    auto index =
        grammar::TokenIndex::make(world_.tokenizer, static_cast<int32_t>(info.vocabulary), info.stop_ids);
    ASSERT_TRUE(index.ok()) << index.error().message;
    index_ = *index;
  }

  std::unique_ptr<Document> submit(unsigned number) {
    auto document = std::make_unique<Document>();
    grammar::test::Random random(number);
    document->schema = random_schema(random);
    grammar::GrammarSpec spec;
    spec.content = grammar::GrammarSpec::Content::json_schema;
    spec.schema = document->schema;
    auto compiled = grammar::compile(spec, index_);
    EXPECT_TRUE(compiled.ok()) << dump_json(document->schema);
    document->grammar = *compiled;
    Request r;
    r.prompt = *world_.tokenizer->encode("Write a document, please: ");
    r.sampling.temperature = number % 3 == 0 ? 0.f : number % 3 == 1 ? 1.f : 1.6f;
    r.sampling.frequency_penalty = number % 5 == 0 ? 0.5f : 0.f;
    r.sampling.seed = number;
    r.stop.max_tokens = kMostTokens;
    r.rules.grammar = document->grammar;
    r.sink = document->reader.sink;
    EXPECT_TRUE(engine_->submit(std::move(r)).ok());
    return document;
  }

  // Whether the document was finished.
  bool check(Document& document) {
    EXPECT_TRUE(document.reader.read());
    if (!document.reader.end) return false;
    std::vector<int32_t> ids = document.reader.tokens;
    const bool finished = document.reader.end->reason == FinishReason::stop;
    EXPECT_TRUE(finished || document.reader.end->reason == FinishReason::length)
        << dump_json(document.schema);
    grammar::Matcher matcher(document.grammar, false);
    for (const int32_t id : ids) EXPECT_TRUE(matcher.accept(id)) << dump_json(document.schema);
    EXPECT_EQ(matcher.finished(), finished);
    if (!finished) return false;
    ids.pop_back();
    const std::string text = world_.tokenizer->decode(ids);
    const auto value = parse_json(text);
    EXPECT_TRUE(value.ok()) << text << "\n" << dump_json(document.schema);
    if (!value.ok()) return false;
    EXPECT_EQ(violation(*value, document.schema, document.schema), "") << text;
    return true;
  }

  World world_;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<const grammar::TokenIndex> index_;
};

TEST_P(StructuredOutput, EveryFinishedDocumentIsValidAndEveryOtherIsAPrefix) {
  // A few sequences are sent away and recomputed on the way.
  fault::arm("schedule.preempt", 50, 30);
  unsigned finished = 0;
  for (unsigned number = 0; number < kSchemas;) {
    std::vector<std::unique_ptr<Document>> running;
    while (running.size() < kAtOnce && number < kSchemas) running.push_back(submit(number++));
    for (auto& document : running) finished += check(*document);
  }
  fault::disarm_all();
  EXPECT_GT(engine_->status().preemptions, 0u);
  std::printf("%s: %u of %u documents were finished\n", world_.name.c_str(), finished, kSchemas);
  EXPECT_GT(finished, kSchemas / 2);
}

INSTANTIATE_TEST_SUITE_P(Models, StructuredOutput, ::testing::Bool(),
                         [](const auto& model) { return model.param ? "tiny" : "odd"; });

}  // namespace
}  // namespace godwit::engine
