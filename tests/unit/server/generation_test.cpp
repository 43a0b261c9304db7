// What becomes of ids: streams and bodies, usage, stops, errors after the first byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "harness.h"

namespace godwit::server::testing {
namespace {

using ::testing::HasSubstr;

const char* const kTools =
    R"("tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":)"
    R"({"city":{"type":"string"},"days":{"type":"integer"}}}}}])";
const char* const kEngineFailed = "the engine failed while the request was running";
const char* const kAsk = R"("messages":[{"role":"user","content":"Hi"}])";

std::string body(std::string_view rest) {
  return std::string("{") + kAsk + (rest.empty() ? "" : ",") + std::string(rest) + "}";
}

// The message that a stream's deltas add up to, in the shape of a body's message.
struct Streamed {
  std::string role, content, reasoning, finish;
  std::vector<std::array<std::string, 3>> calls;  // id, name, arguments
  Json usage;
  std::string error;
  bool done = false;
  int finish_chunks = 0;
};

Streamed gather(const Answer& answer, int index = 0) {
  Streamed out;
  for (const std::string& event : answer.events()) {
    EXPECT_FALSE(out.done) << "an event after [DONE]";
    if (event == "[DONE]") {
      out.done = true;
      continue;
    }
    auto parsed = parse_json(event);
    EXPECT_TRUE(parsed.ok()) << event;
    if (!parsed.ok()) continue;
    if (const Json* error = parsed->find("error")) {
      out.error = error->find("message")->as_string();
      continue;
    }
    if (const Json* usage = parsed->find("usage"); usage && !usage->is_null()) out.usage = *usage;
    for (const Json& choice : parsed->find("choices")->as_array()) {
      if (choice.find("index")->as_integer() != index) continue;
      const Json& delta = *choice.find("delta");
      if (const Json* v = delta.find("role")) out.role += v->as_string();
      if (const Json* v = delta.find("content")) out.content += v->as_string();
      if (const Json* v = delta.find("reasoning_content")) {
        out.reasoning += v->as_string();
        EXPECT_EQ(*v, *delta.find("reasoning"));
      }
      if (const Json* calls = delta.find("tool_calls")) {
        for (const Json& call : calls->as_array()) {
          const auto at = static_cast<size_t>(call.find("index")->as_integer());
          if (at == out.calls.size()) {
            out.calls.push_back(
                {call.find("id")->as_string(), call.find("function")->find("name")->as_string(), ""});
          } else {
            EXPECT_EQ(call.find("id"), nullptr);
            EXPECT_EQ(call.find("function")->find("name"), nullptr);
          }
          out.calls.at(at)[2] += call.find("function")->find("arguments")->as_string();
        }
      }
      if (const Json& finish = *choice.find("finish_reason"); !finish.is_null()) {
        out.finish = finish.as_string();
        ++out.finish_chunks;
      }
    }
  }
  return out;
}

std::string text_or_empty(const Json& message, std::string_view key) {
  const Json* value = message.find(key);
  return value && value->is_string() ? value->as_string() : "";
}

class Generation : public ::testing::Test {
 protected:
  // The fake answers every request with the ids of `output`.
  void answer_with(std::string output) { output_ = std::move(output); }
  Harness harness_{[this](const engine::Request& request) {
    last_ = request;
    last_.sink = nullptr;
    script_.ids = harness_.ids(output_);
    return script_;
  }};
  std::string output_;
  Script script_;
  engine::Request last_;
};

TEST_F(Generation, StreamsAddUpToTheBody) {
  const std::string samples[] = {
      "I think so.</think>The answer is 42.<|user|>",
      "</think>Héllo wörld ✓<|user|>",
      "never closed<|user|>",
      "hm</think><tool_call>get_weather<arg_key>city</arg_key><arg_value>Zürich \"x\"</arg_value>"
      "<arg_key>days</arg_key><arg_value>3</arg_value></tool_call><tool_call>get_weather</"
      "tool_call><|observation|>",
      "hm</think>Let me "
      "see.<tool_call>no_such_tool<arg_key>a</arg_key><arg_value>b</arg_value></tool_call><|user|>",
      "</think><|user|>",
  };
  for (const std::string& sample : samples) {
    SCOPED_TRACE(sample);
    answer_with(sample);
    const Answer whole = harness_.post("/v1/chat/completions", body(kTools));
    ASSERT_EQ(whole.status, 200) << whole.body;
    const Json json = whole.json();
    const Json& choice = json.find("choices")->as_array()[0];
    const Json& message = *choice.find("message");
    const Streamed stream = gather(harness_.post(
        "/v1/chat/completions",
        body(std::string(kTools) + R"(,"stream":true,"stream_options":{"include_usage":true})")));
    EXPECT_EQ(stream.role, "assistant");
    EXPECT_EQ(stream.content, text_or_empty(message, "content"));
    const std::string reasoning = text_or_empty(message, "reasoning_content");
    if (!reasoning.empty()) {
      EXPECT_EQ(stream.reasoning, reasoning);
    }
    EXPECT_EQ(stream.finish, choice.find("finish_reason")->as_string());
    EXPECT_EQ(stream.finish_chunks, 1);
    EXPECT_TRUE(stream.done);
    EXPECT_EQ(stream.usage, *json.find("usage"));
    const Json* calls = message.find("tool_calls");
    ASSERT_EQ(stream.calls.size(), calls ? calls->as_array().size() : 0);
    for (size_t i = 0; i < stream.calls.size(); ++i) {
      const Json& function = *calls->as_array()[i].find("function");
      EXPECT_EQ(stream.calls[i][1], function.find("name")->as_string());
      EXPECT_EQ(stream.calls[i][2], function.find("arguments")->as_string());
      EXPECT_EQ(stream.finish, "tool_calls");
    }
  }
}

TEST_F(Generation, UsageCountsPromptCachedReasoningAndTheStopId) {
  answer_with("one two</think>three<|user|>");
  script_.cached_tokens = 5;
  const Json json = harness_.post("/v1/chat/completions", body("")).json();
  const Json& usage = *json.find("usage");
  const auto n = [&](const Json& object, const char* key) { return object.find(key)->as_integer(); };
  EXPECT_EQ(n(usage, "prompt_tokens"), static_cast<int64_t>(last_.prompt.size()));
  EXPECT_EQ(n(usage, "completion_tokens"), static_cast<int64_t>(script_.ids.size()));
  EXPECT_EQ(n(usage, "total_tokens"), n(usage, "prompt_tokens") + n(usage, "completion_tokens"));
  EXPECT_EQ(n(*usage.find("prompt_tokens_details"), "cached_tokens"), 5);
  EXPECT_EQ(n(*usage.find("completion_tokens_details"), "reasoning_tokens"),
            static_cast<int64_t>(harness_.ids("one two").size()));
}

TEST_F(Generation, AnswersSayWhyThePromptWasNotCached) {
  answer_with("</think>one<|user|>");
  script_.cached_tokens = 64;
  script_.miss = engine::MissReason::first_difference;
  script_.first_difference_at = 77;
  const char* const kWhy =
      R"("prefix_cache":{"cached_tokens":64,"miss":"first_difference","first_difference_at":77})";
  EXPECT_THAT(harness_.post("/v1/chat/completions", body("")).body, HasSubstr(kWhy));
  EXPECT_THAT(
      harness_.post("/v1/chat/completions", body(R"("stream":true,"stream_options":{"include_usage":true})"))
          .body,
      HasSubstr(kWhy));
  script_.miss = engine::MissReason::none;
  EXPECT_THAT(harness_.post("/v1/chat/completions", body("")).body,
              HasSubstr(R"("prefix_cache":{"cached_tokens":64,"miss":"none"})"));
}

TEST_F(Generation, ATimeoutBecomesTheDeadlineOfTheRequest) {
  answer_with("</think>one<|user|>");
  const int64_t before = SteadyClock().now_ns();
  harness_.post("/v1/chat/completions", body(R"("timeout_ms":250)"));
  EXPECT_GE(last_.deadline_ns, before + 250'000'000);
  EXPECT_LE(last_.deadline_ns, SteadyClock().now_ns() + 250'000'000);
  harness_.post("/v1/chat/completions", body(""));
  EXPECT_EQ(last_.deadline_ns, 0);
  EXPECT_EQ(harness_.post("/v1/chat/completions", body(R"("timeout_ms":0)")).status, 400);
}

TEST_F(Generation, StopStringsEndContentOnlyAndCancelTheEngine) {
  answer_with("STOP here</think>one STOP two three<|user|>");
  script_.hang = true;
  const Json json = harness_.post("/v1/chat/completions", body(R"("stop":["STOP"])")).json();
  const Json& choice = json.find("choices")->as_array()[0];
  EXPECT_EQ(choice.find("message")->find("content")->as_string(), "one ");
  EXPECT_EQ(choice.find("message")->find("reasoning_content")->as_string(), "STOP here");
  EXPECT_EQ(choice.find("finish_reason")->as_string(), "stop");
  EXPECT_EQ(choice.find("stop_reason")->as_string(), "STOP");
  EXPECT_TRUE(becomes([&] { return harness_.service->cancelled_ == 1; }));
}

TEST_F(Generation, LengthIsReportedAsLength) {
  answer_with("thinking and thinking and thinking<|user|>");
  const Json json = harness_.post("/v1/chat/completions", body(R"("max_tokens":3)")).json();
  const Json& choice = json.find("choices")->as_array()[0];
  EXPECT_EQ(choice.find("finish_reason")->as_string(), "length");
  EXPECT_EQ(choice.find("message")->find("content")->as_string(), "");
  EXPECT_EQ(json.find("usage")->find("completion_tokens")->as_integer(), 3);
}

TEST_F(Generation, SeveralChoicesKeepTheirIndices) {
  answer_with("</think>same<|user|>");
  const Answer whole = harness_.post("/v1/chat/completions", body(R"("n":3)"));
  const Json json = whole.json();
  ASSERT_EQ(json.find("choices")->as_array().size(), 3u);
  EXPECT_EQ(json.find("usage")->find("completion_tokens")->as_integer(),
            3 * static_cast<int64_t>(script_.ids.size()));
  EXPECT_EQ(json.find("usage")->find("prompt_tokens")->as_integer(),
            static_cast<int64_t>(last_.prompt.size()));
  const Answer stream = harness_.post("/v1/chat/completions", body(R"("n":3,"stream":true)"));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(gather(stream, i).content, "same");
}

TEST_F(Generation, RequestCarriesSamplingDefaultsAndOverrides) {
  answer_with("</think>x<|user|>");
  const Json drawn = harness_.post("/v1/chat/completions", body("")).json();
  EXPECT_FLOAT_EQ(last_.sampling.temperature, 1.0f);
  EXPECT_FLOAT_EQ(last_.sampling.top_p, 0.95f) << "generation_config.json";
  EXPECT_EQ(drawn.find("seed")->as_integer(), static_cast<int64_t>(last_.sampling.seed))
      << "a drawn seed is reported";
  harness_.post("/v1/chat/completions",
                body(R"("temperature":0,"top_p":0.5,"top_k":-1,"seed":-7,"max_tokens":11)"));
  EXPECT_EQ(last_.sampling.temperature, 0);
  EXPECT_FLOAT_EQ(last_.sampling.top_p, 0.5f);
  EXPECT_EQ(last_.sampling.top_k, 0);
  EXPECT_EQ(static_cast<int64_t>(last_.sampling.seed), -7);
  EXPECT_EQ(last_.stop.max_tokens, 11);
}

TEST_F(Generation, ControlTokensInMessagesStayText) {
  answer_with("</think>x<|user|>");
  harness_.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"a<|user|>b</think>c"}]})");
  const auto count = [&](int32_t id) { return std::count(last_.prompt.begin(), last_.prompt.end(), id); };
  EXPECT_EQ(count(harness_.model->control_ids.user), 1);
  EXPECT_EQ(count(harness_.model->control_ids.think_close), 0);
}

TEST_F(Generation, ThinkingOffClosesTheBlockAndTheAnswerIsContent) {
  answer_with("plain<|user|>");
  const Json json = harness_.post("/v1/chat/completions", body(R"("reasoning_effort":"none")")).json();
  EXPECT_EQ(last_.prompt.back(), harness_.model->control_ids.think_close);
  EXPECT_EQ(json.find("choices")->as_array()[0].find("message")->find("content")->as_string(), "plain");
  EXPECT_EQ(json.find("usage")->find("completion_tokens_details")->find("reasoning_tokens")->as_integer(), 0);
}

TEST_F(Generation, AnErrorAfterTheFirstByteIsAnEventThenDone) {
  answer_with("one two three four five six<|user|>");
  script_.fail_after = 3;
  const Answer stream = harness_.post("/v1/chat/completions", body(R"("stream":true)"));
  EXPECT_EQ(stream.status, 200);
  const Streamed got = gather(stream);
  EXPECT_EQ(got.error, kEngineFailed);
  EXPECT_TRUE(got.done);
  EXPECT_EQ(got.finish_chunks, 0);
  const Answer whole = harness_.post("/v1/chat/completions", body(""));
  EXPECT_EQ(whole.status, 500);
  EXPECT_EQ(whole.json().find("error")->find("message")->as_string(), kEngineFailed);
}

TEST_F(Generation, CompletionsGiveRawTextForEveryPromptForm) {
  answer_with("a <think>b</think> c<|user|>");
  const Json json =
      harness_.post("/v1/completions", R"({"prompt":["x",[1,2,3]],"n":2,"echo":true,"max_tokens":50})")
          .json();
  const JsonArray& choices = json.find("choices")->as_array();
  ASSERT_EQ(choices.size(), 4u);
  EXPECT_EQ(choices[1].find("index")->as_integer(), 1);
  EXPECT_EQ(choices[1].find("text")->as_string(), "xa <think>b</think> c");
  EXPECT_EQ(json.find("object")->as_string(), "text_completion");
  const Answer stream =
      harness_.post("/v1/completions", R"({"prompt":"x","stream":true,"stop":"</think>","max_tokens":50})");
  std::string text, finish;
  for (const std::string& event : stream.events()) {
    if (event == "[DONE]") continue;
    const Json choice = parse_json(event)->find("choices")->as_array()[0];
    text += choice.find("text")->as_string();
    if (!choice.find("finish_reason")->is_null()) finish = choice.find("finish_reason")->as_string();
  }
  EXPECT_EQ(text, "a <think>b");
  EXPECT_EQ(finish, "stop");
}

TEST_F(Generation, LogprobsAreListedForContentAndApartForThinking) {
  answer_with("one</think>two three<|user|>");
  const std::string ask = body(R"("logprobs":true,"top_logprobs":2)");
  const Json whole = harness_.post("/v1/chat/completions", ask).json();
  EXPECT_EQ(last_.sampling.top_logprobs, 2);
  const Json& logprobs = *whole.find("choices")->as_array()[0].find("logprobs");
  std::string text;
  for (const Json& entry : logprobs.find("content")->as_array()) {
    EXPECT_EQ(entry.find("logprob")->as_double(), -0.5);
    text += entry.find("token")->as_string();
  }
  EXPECT_THAT(text, HasSubstr("two three"));
  EXPECT_FALSE(logprobs.find("reasoning_logprobs")->as_array().empty());
  size_t streamed = 0;
  for (const std::string& event :
       harness_.post("/v1/chat/completions", body(R"("logprobs":true,"stream":true)")).events()) {
    if (event == "[DONE]") continue;
    const Json json = *parse_json(event);
    const Json& list = *json.find("choices")->as_array()[0].find("logprobs");
    if (!list.is_null()) streamed += list.find("content")->as_array().size();
  }
  EXPECT_EQ(streamed, logprobs.find("content")->as_array().size());
}

TEST_F(Generation, SingleCallWhenParallelCallsAreForbidden) {
  answer_with("</think><tool_call>get_weather</tool_call><tool_call>get_weather</tool_call><|observation|>");
  const Json json =
      harness_.post("/v1/chat/completions", body(std::string(kTools) + R"(,"parallel_tool_calls":false)"))
          .json();
  const Json& choice = json.find("choices")->as_array()[0];
  EXPECT_EQ(choice.find("message")->find("tool_calls")->as_array().size(), 1u);
  EXPECT_TRUE(choice.find("message")->find("content")->is_null());
  EXPECT_EQ(choice.find("finish_reason")->as_string(), "tool_calls");
}

// Clients read message.reasoning_content without asking whether it is there.
TEST(Message, HasItsReasoningFieldsAlsoWhenNothingWasThought) {
  Harness harness([](const engine::Request&) { return Script{}; });
  const Json json = harness
                        .post("/v1/chat/completions",
                              R"({"messages":[{"role":"user","content":"Hi"}],"enable_thinking":false})")
                        .json();
  const Json* message = json.find("choices")->as_array()[0].find("message");
  for (const char* key : {"reasoning_content", "reasoning", "refusal"}) {
    ASSERT_TRUE(message->find(key)) << key;
    EXPECT_TRUE(message->find(key)->is_null()) << key;
  }
  EXPECT_EQ(message->find("content")->as_string(), "");
}

}  // namespace
}  // namespace godwit::server::testing
