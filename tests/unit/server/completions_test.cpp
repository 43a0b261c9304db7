// What only /v1/completions has: echo with log probabilities of the prompt, best_of, nothing to generate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness.h"

namespace godwit::server::testing {
namespace {

const char* const kText = "/v1/completions";

Json choice_of(const Answer& answer, size_t index = 0) {
  EXPECT_EQ(answer.status, 200) << answer.body;
  return answer.json().find("choices")->as_array().at(index);
}

// All chunks of a stream as one choice.
Json joined(const Answer& answer) {
  std::string text;
  JsonObject lists;
  Json finish;
  for (const std::string& event : answer.events()) {
    if (event == "[DONE]") break;
    const Json chunk = *parse_json(event);
    const Json& choice = chunk.find("choices")->as_array()[0];
    text += choice.find("text")->as_string();
    if (!choice.find("finish_reason")->is_null()) finish = *choice.find("finish_reason");
    const Json& logprobs = *choice.find("logprobs");
    if (logprobs.is_null()) continue;
    for (const auto& [name, list] : logprobs.as_object()) {
      if (lists.find(name) == nullptr) lists.set(name, JsonArray());
      for (const Json& item : list.as_array()) lists.find(name)->as_array().push_back(item);
    }
  }
  return Json::object({{"text", text}, {"logprobs", Json(std::move(lists))}, {"finish_reason", finish}});
}

class Completions : public ::testing::Test {
 protected:
  Completions()
      : harness_([this](const engine::Request& request) {
          seen_ = request;
          return Script{.ids = harness_.ids(" there<|endoftext|>")};
        }) {}

  engine::Request seen_;
  Harness harness_;
};

TEST_F(Completions, EchoWithLogprobsCoversThePrompt) {
  const std::string prompt = "[gMASK]<sop>Grüße 🙂 hello";
  const auto ids = harness_.ids(prompt);
  const std::string body = R"({"prompt":")" + prompt + R"(","echo":true,"logprobs":1,"max_tokens":9)";
  const Json whole = choice_of(harness_.post(kText, body + "}"));
  EXPECT_TRUE(seen_.prompt_logprobs);
  EXPECT_EQ(whole.find("text")->as_string(), prompt + " there");
  const Json& logprobs = *whole.find("logprobs");
  const size_t generated = harness_.ids(" there<|endoftext|>").size();  // the stop id has its entry, too
  for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
    ASSERT_EQ(logprobs.find(list)->as_array().size(), ids.size() + generated) << list;
  EXPECT_TRUE(logprobs.find("token_logprobs")->as_array()[0].is_null());
  EXPECT_TRUE(logprobs.find("top_logprobs")->as_array()[0].is_null());
  EXPECT_EQ(logprobs.find("token_logprobs")->as_array()[1].as_double(), -0.25);
  EXPECT_EQ(logprobs.find("token_logprobs")->as_array()[ids.size()].as_double(), -0.5);
  // An id's alternatives are found under its own text.
  for (size_t i = 1; i < ids.size(); ++i)
    EXPECT_NE(
        logprobs.find("top_logprobs")->as_array()[i].find(logprobs.find("tokens")->as_array()[i].as_string()),
        nullptr);
  int64_t before = 0;
  for (const Json& offset : logprobs.find("text_offset")->as_array()) {
    EXPECT_GE(offset.as_integer(), before);
    before = offset.as_integer();
  }
  const Json streamed = joined(harness_.post(kText, body + R"(,"stream":true})"));
  EXPECT_EQ(streamed.find("text")->as_string(), whole.find("text")->as_string());
  EXPECT_EQ(*streamed.find("logprobs"), logprobs);
}

TEST_F(Completions, WithoutLogprobsTheCacheIsUsed) {
  const Json choice = choice_of(harness_.post(kText, R"({"prompt":"hello","echo":true,"max_tokens":9})"));
  EXPECT_FALSE(seen_.prompt_logprobs);
  EXPECT_EQ(choice.find("text")->as_string(), "hello there");
}

TEST_F(Completions, NothingToGenerate) {
  for (const char* more : {"", R"(,"logprobs":0)", R"(,"logprobs":3)"}) {
    for (const char* stream : {"", R"(,"stream":true)"}) {
      const Answer answer = harness_.post(
          kText, std::string(R"({"prompt":[5,6,7],"echo":true,"max_tokens":0)") + more + stream + "}");
      const Json choice = *stream ? joined(answer) : choice_of(answer);
      EXPECT_EQ(choice.find("text")->as_string(),
                harness_.model->tokenizer->decode(std::vector<int32_t>{5, 6, 7}));
      EXPECT_EQ(choice.find("finish_reason")->as_string(), "length");
      if (*stream) continue;
      const Json json = answer.json();
      EXPECT_EQ(json.find("usage")->find("completion_tokens")->as_integer(), 0);
      EXPECT_EQ(json.find("usage")->find("prompt_tokens")->as_integer(), 3);
    }
  }
}

TEST_F(Completions, TokenizerInfoHasWhatEvaluationsAskFor) {
  for (const char* path : {"/tokenizer_info", "/v1/tokenizer_info"}) {
    const Json info = harness_.get(path).json();
    ASSERT_NE(info.find("eos_token"), nullptr) << path;
    EXPECT_EQ(info.find("eos_token")->as_string(), "<|endoftext|>");
    EXPECT_THAT(info.find("chat_template")->as_string(), ::testing::HasSubstr("<|assistant|>"));
    EXPECT_TRUE(info.find("bos_token")->is_null());
  }
}

TEST(CompletionsBestOf, TheLikeliestChoicesComeBack) {
  Harness harness([&](const engine::Request& request) {
    Script script;
    script.ids.assign(3, static_cast<int32_t>(10 + request.choice_index));
    script.logprob = request.choice_index == 2 ? -0.1f : request.choice_index == 0 ? -0.2f : -0.9f;
    script.reason = engine::FinishReason::length;
    return script;
  });
  const Answer answer = harness.post(kText, R"({"prompt":["a","b"],"n":2,"best_of":4,"max_tokens":3})");
  const Json json = answer.json();
  const JsonArray& choices = json.find("choices")->as_array();
  ASSERT_EQ(choices.size(), 4u) << answer.body;
  const auto text = [&](int32_t id) { return harness.model->tokenizer->decode(std::vector<int32_t>(3, id)); };
  for (size_t i = 0; i < choices.size(); ++i) {
    EXPECT_EQ(choices[i].find("index")->as_integer(), static_cast<int64_t>(i));
    EXPECT_EQ(choices[i].find("text")->as_string(), text(i % 2 == 0 ? 12 : 10));
    EXPECT_TRUE(choices[i].find("logprobs")->is_null());
  }
  EXPECT_EQ(json.find("usage")->find("completion_tokens")->as_integer(), 24)
      << "all that was generated counts";
}

}  // namespace
}  // namespace godwit::server::testing
