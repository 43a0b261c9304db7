// Every kind of bad request: its status, the field it names, the limit it states; and the server lives on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "harness.h"

namespace godwit::server::testing {
namespace {

using ::testing::HasSubstr;

Script hello(const engine::Request&) {
  return {};
}

struct Bad {
  const char* path;
  std::string body;
  int status;
  const char* param;  // error.param; "" = null
  const char* says;   // part of the message
};

std::string chat(std::string_view rest) {
  return R"({"messages":[{"role":"user","content":"Hi"}],)" + std::string(rest) + "}";
}
std::string text(std::string_view rest) {
  return R"({"prompt":"Hi",)" + std::string(rest) + "}";
}

const char* const kChat = "/v1/chat/completions";
const char* const kText = "/v1/completions";

std::vector<Bad> table() {
  return {
      {kChat, "", 400, "", "no body"},
      {kChat, "{", 400, "", "not valid JSON"},
      {kChat, "[]", 400, "", "must be a JSON object"},
      {kChat, "\"text\"", 400, "", "must be a JSON object"},
      {kChat, R"({"messages":[{"role":"user","content":"\xff"}]})", 400, "", "not valid JSON"},
      {kChat, std::string(5000, '['), 400, "", "not valid JSON"},
      {kChat, "{}", 400, "messages", "required"},
      {kChat, R"({"messages":null})", 400, "messages", "required"},
      {kChat, R"({"messages":[]})", 400, "messages", "must not be empty"},
      {kChat, R"({"messages":"Hi"})", 400, "messages", "array"},
      {kChat, R"({"messages":[1]})", 400, "messages[0]", "object"},
      {kChat, R"({"messages":[{"role":"robot","content":"Hi"}]})", 400, "messages[0].role", "robot"},
      {kChat, R"({"messages":[{"role":"user","content":"a"},{"role":"user","content":5}]})", 400,
       "messages[1].content", "5"},
      {kChat,
       R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]}]})",
       400, "messages[0].content[0]", "media input is not available"},
      {kChat, chat(R"("model":7)"), 400, "model", "must be a string"},
      {kChat, chat(R"("model":"nobody")"), 404, "model", "nobody"},
      {kChat, chat(R"("temperature":NaN)"), 400, "temperature", "finite"},
      {kChat, chat(R"("temperature":Infinity)"), 400, "temperature", "finite"},
      {kChat, chat(R"("temperature":"hot")"), 400, "temperature", "must be a number"},
      {kChat, chat(R"("temperature":2.5)"), 400, "temperature", "at most 2"},
      {kChat, chat(R"("temperature":-1)"), 400, "temperature", "at least 0"},
      {kChat, chat(R"("top_p":0)"), 400, "top_p", "greater than 0"},
      {kChat, chat(R"("top_p":1.01)"), 400, "top_p", "at most 1"},
      {kChat, chat(R"("top_k":-2)"), 400, "top_k", "at least -1"},
      {kChat, chat(R"("top_k":1.5)"), 400, "top_k", "integer"},
      {kChat, chat(R"("min_p":2)"), 400, "min_p", "at most 1"},
      {kChat, chat(R"("repetition_penalty":0)"), 400, "repetition_penalty", "greater than 0"},
      {kChat, chat(R"("presence_penalty":-3)"), 400, "presence_penalty", "at least -2"},
      {kChat, chat(R"("frequency_penalty":"x")"), 400, "frequency_penalty", "must be a number"},
      {kChat, chat(R"("seed":1e400)"), 400, "", ""},
      {kChat, chat(R"("seed":123456789012345678901234567890)"), 400, "seed", "at most 9223372036854775807"},
      {kChat, chat(R"("n":0)"), 400, "n", "at least 1"},
      {kChat, chat(R"("n":17)"), 400, "n", "at most 16"},
      {kChat, chat(R"("max_tokens":0)"), 400, "max_tokens", "at least 1"},
      {kChat, chat(R"("max_completion_tokens":-5)"), 400, "max_completion_tokens", "at least 1"},
      {kChat, chat(R"("min_tokens":9,"max_tokens":3)"), 400, "min_tokens", "more than"},
      {kChat, chat(R"("stop":7)"), 400, "stop", "must be a string"},
      {kChat, chat(R"("stop":["a",7])"), 400, "stop[1]", "must be a string"},
      {kChat, chat(R"("stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])"),
       400, "stop", "at most 16"},
      {kChat, chat(R"("stop_token_ids":[999999])"), 400, "stop_token_ids[0]", "999999"},
      {kChat, chat(R"("logit_bias":{"abc":1})"), 400, "logit_bias", "abc"},
      {kChat, chat(R"("logit_bias":{"5":101})"), 400, "logit_bias.5", "-100 to 100"},
      {kChat, chat(R"("logit_bias":[1])"), 400, "logit_bias", "must be an object"},
      {kChat, chat(R"("stream":"yes")"), 400, "stream", "true or false"},
      {kChat, chat(R"("stream_options":{"include_usage":true})"), 400, "stream_options", "stream is true"},
      {kChat, chat(R"("stream":true,"stream_options":{"include_usage":1})"), 400,
       "stream_options.include_usage", "true or false"},
      {kChat, chat(R"("logprobs":5)"), 400, "logprobs", "true or false"},
      {kChat, chat(R"("top_logprobs":3)"), 400, "top_logprobs", "logprobs is true"},
      {kChat, chat(R"("logprobs":true,"top_logprobs":21)"), 400, "top_logprobs", "at most 20"},
      {kChat, chat(R"("response_format":"text")"), 400, "response_format", "must be an object"},
      {kChat, chat(R"("response_format":{})"), 400, "response_format.type", "required"},
      {kChat, chat(R"("response_format":{"type":"xml"})"), 400, "response_format.type", "xml"},
      {kChat, chat(R"("response_format":{"type":"json_schema","json_schema":{}})"), 400,
       "response_format.json_schema.schema", "is required"},
      {kChat, chat(R"("response_format":{"type":"json_schema","json_schema":{"schema":[1]}})"), 400,
       "response_format.json_schema.schema", "JSON Schema object"},
      {kChat,
       chat(
           R"("response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object","properties":{"a":{"not":{}}}}}})"),
       400, "response_format.json_schema.schema", "#/properties/a"},
      {kChat, chat(R"("response_format":{"type":"json_schema","schema":{"multipleOf":2}})"), 400,
       "response_format.schema", "multipleOf"},
      {kChat, chat(R"("guided_json":7)"), 400, "guided_json", "JSON Schema object"},
      {kChat, chat(R"("guided_json":"{oops")"), 400, "guided_json", "not the JSON text"},
      {kChat, chat(R"("guided_json":{"if":{}})"), 400, "guided_json", "if"},
      {kChat, chat(R"("guided_regex":7)"), 400, "guided_regex", "must be a string"},
      {kChat, chat(R"("guided_regex":"(?=a)b")"), 400, "guided_regex", "guided_regex"},
      {kChat, chat(R"("guided_choice":[])"), 400, "guided_choice", "must not be empty"},
      {kChat, chat(R"("guided_choice":["a",2])"), 400, "guided_choice[1]", "must be a string"},
      {kChat, chat(R"("guided_grammar":"root ::= x")"), 400, "guided_grammar", "not supported"},
      {kChat, chat(R"("structured_outputs":{"grammar":"root ::= x"})"), 400, "structured_outputs.grammar",
       "not supported"},
      {kChat, chat(R"("structured_outputs":{"regex":"a","choice":["a"]})"), 400, "structured_outputs.choice",
       "send one of them"},
      {kChat, chat(R"("guided_regex":"a","response_format":{"type":"json_object"})"), 400, "guided_regex",
       "send one of them"},
      {kChat, chat(R"("tool_choice":"auto")"), 400, "tool_choice", "together with tools"},
      {kChat,
       chat(
           R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"g"}})"),
       400, "tool_choice", "not in tools"},
      {kChat,
       chat(
           R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"contains":1}}}}}],"tool_choice":"required")"),
       400, "tools[0].function.parameters", "contains"},
      {kChat,
       chat(
           R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"often","tools":[{"name":"f"}]}})"),
       400, "tool_choice.allowed_tools.mode", "often"},
      {kChat,
       chat(
           R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","mode":"auto"})"),
       400, "tool_choice.tools", "is required"},
      {kChat, chat(R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"maybe")"), 400,
       "tool_choice", "maybe"},
      {kChat,
       chat(
           R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{}})"),
       400, "tool_choice", "must name a function"},
      {kChat, chat(R"("tools":{"f":1})"), 400, "tools", "must be a list of tools"},
      {kChat, chat(R"("reasoning_effort":"huge")"), 400, "reasoning_effort", "huge"},
      {kChat, chat(R"("continue_final_message":true)"), 400, "continue_final_message", "role assistant"},
      {kChat,
       R"({"messages":[{"role":"assistant","content":"A"}],"continue_final_message":true,"add_generation_prompt":true})",
       400, "continue_final_message", "exclude each other"},
      {kChat,
       R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{}}}]}],"continue_final_message":true})",
       400, "messages[0].tool_calls", "cannot be continued"},
      {kChat, chat(R"("thinking_token_budget":-2)"), 400, "thinking_token_budget", "from -1"},
      {kChat, chat(R"("max_reasoning_tokens":"many")"), 400, "max_reasoning_tokens", "integer"},
      {kChat, chat(R"("thinking_token_budget":5,"reasoning_budget":6)"), 400, "reasoning_budget",
       "send one of them"},
      {kChat, chat(R"("chat_template":"{{ x }}")"), 400, "chat_template", "not supported"},
      {kText, "{}", 400, "prompt", "required"},
      {kText, R"({"prompt":""})", 400, "prompt", "must not be empty"},
      {kText, R"({"prompt":[]})", 400, "prompt", "not empty"},
      {kText, R"({"prompt":[[]]})", 400, "prompt[0]", "must not be empty"},
      {kText, R"({"prompt":[1,-1]})", 400, "prompt[1]", "-1"},
      {kText, R"({"prompt":[1,"a"]})", 400, "prompt[1]", "token id"},
      {kText, R"({"prompt":["a",1]})", 400, "prompt[1]", "string or a list"},
      {kText, R"({"prompt":{"a":1}})", 400, "prompt", "must be a string"},
      {kText, text(R"("logprobs":21)"), 400, "logprobs", "at most 20"},
      {kText, text(R"("max_tokens":0)"), 400, "max_tokens", "at least 1"},
      {kText, text(R"("best_of":2,"n":3)"), 400, "best_of", "n asks for 3"},
      {kText, text(R"("best_of":17)"), 400, "best_of", "at most 16"},
      {kText, text(R"("best_of":2,"stream":true)"), 400, "best_of", "stream"},
      {kText, text(R"("suffix":"x")"), 400, "suffix", "not supported"},
      {"/tokenize", "{}", 400, "prompt", "required"},
      {"/detokenize", R"({"tokens":[99999999]})", 400, "tokens[0]", "99999999"},
  };
}

TEST(BadRequests, EachIsRefusedByFieldAndLimit) {
  Harness harness(hello);
  for (const Bad& bad : table()) {
    const Answer answer = harness.post(bad.path, bad.body.empty() ? " " : bad.body);
    SCOPED_TRACE(bad.body.substr(0, 200) + " ▶ " + answer.body);
    EXPECT_EQ(answer.status, bad.status);
    const Json json = answer.json();
    const Json* error = json.find("error");
    ASSERT_NE(error, nullptr);
    EXPECT_THAT(error->find("message")->as_string(), HasSubstr(bad.says));
    const Json* param = error->find("param");
    EXPECT_EQ(param->is_null() ? "" : param->as_string(), bad.param);
  }
  EXPECT_EQ(harness.get("/readyz").status, 200);
  EXPECT_EQ(harness.service->pushed_.load(), 0) << "the engine saw a bad request";
}

TEST(BadRequests, PromptBeyondTheContextSaysSoInTheWordsClientsMatch) {
  Harness harness(hello, {}, 16);
  std::string content;
  for (int i = 0; i < 100; ++i) content += "hello ";
  const Answer answer = harness.post(kText, R"({"max_tokens":7,"prompt":")" + content + "\"}");
  EXPECT_EQ(answer.status, 400);
  const Json json = answer.json();
  const Json& error = *json.find("error");
  EXPECT_EQ(error.find("code")->as_string(), "context_length_exceeded");
  EXPECT_THAT(
      error.find("message")->as_string(),
      ::testing::MatchesRegex("This model's maximum context length is 16 tokens\\. However, you requested "
                              "[0-9]+ tokens \\([0-9]+ in the messages, 7 in the completion\\)\\. Please "
                              "reduce the length of the messages or completion\\."));
}

TEST(BadRequests, MaxTokensIsClampedWhenOnlyTheSumOverflows) {
  int64_t max_tokens = 0;
  Harness harness(
      [&](const engine::Request& request) {
        max_tokens = request.stop.max_tokens + static_cast<int64_t>(request.prompt.size());
        return Script{};
      },
      {}, 64);
  EXPECT_EQ(harness.post(kText, R"({"prompt":"hello","max_tokens":1000})").status, 200);
  EXPECT_EQ(max_tokens, 64);
}

TEST(BadRequests, TheEngineFullIs429WithRetryAfter) {
  Harness harness(hello);
  harness.service->refuse_ = true;
  const Answer answer = harness.post(kChat, R"({"messages":[{"role":"user","content":"Hi"}]})");
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.header("retry-after"), "1");
}

// The tokenizer refuses it, but the client must hear of its own field.
TEST(BadRequests, TextBeyondTheTokenizersLimitNamesTheFieldItCameIn) {
  Harness harness([](const engine::Request&) { return Script{}; });
  const std::string text(34u << 20, 'a');
  for (const auto& [path, body, field] :
       {std::tuple("/v1/completions", R"({"prompt":")" + text + R"("})", "prompt"),
        std::tuple("/v1/completions", R"({"prompt":["a",")" + text + R"("]})", "prompt[1]"),
        std::tuple("/v1/chat/completions", R"({"messages":[{"role":"user","content":")" + text + R"("}]})",
                   "messages")}) {
    const Answer answer = harness.post(path, body);
    EXPECT_EQ(answer.status, 413) << path;
    const Json json = answer.json();
    ASSERT_TRUE(json.find("error")) << answer.body.substr(0, 200);
    EXPECT_EQ(json.find("error")->find("param")->as_string(), field);
  }
}

}  // namespace
}  // namespace godwit::server::testing
