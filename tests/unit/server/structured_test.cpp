// What requests say about the form of the answer, as the engine gets it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "grammar/matcher.h"
#include "harness.h"
#include "server/known_fields.h"

namespace godwit::server::testing {
namespace {

using ::testing::HasSubstr;

const char* const kChat = "/v1/chat/completions";
const std::string kAsk = R"("messages":[{"role":"user","content":"Hi"}])";
const std::string kTools =
    R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}}},
                {"type":"function","function":{"name":"g","strict":true,"parameters":{"type":"object","properties":{"b":{"type":"boolean"}},"required":["b"]}}}])";

class StructuredRequests : public ::testing::Test {
 protected:
  StructuredRequests()
      : harness_([this](const engine::Request& request) {
          seen_ = request;
          return Script{};
        }) {}

  // What the engine is asked for; the answer must be 200.
  const engine::Request& asked(const std::string& rest, const char* path = kChat) {
    const std::string lead = path == std::string_view(kChat) ? kAsk : R"("prompt":"Hi")";
    const Answer answer = harness_.post(path, "{" + lead + "," + rest + "}");
    EXPECT_EQ(answer.status, 200) << answer.body;
    return seen_;
  }

  // Whether the request's grammar takes the whole text, control tags as their ids, and may end there.
  bool takes(const engine::Request& request, std::string_view text) {
    if (request.rules.grammar == nullptr) {
      ADD_FAILURE() << "there is no grammar";
      return false;
    }
    grammar::Matcher matcher(request.rules.grammar, request.rules.thinking);
    for (const int32_t id : harness_.ids(text))
      if (!matcher.accept(id)) return false;
    return matcher.is_complete();
  }

  engine::Request seen_;
  Harness harness_;
};

TEST_F(StructuredRequests, WithoutARuleThereIsNone) {
  EXPECT_FALSE(asked(R"("response_format":{"type":"text"})").rules.any());
  EXPECT_FALSE(asked(R"("guided_json":null,"structured_outputs":{"json_object":false})").rules.any());
  EXPECT_FALSE(asked(R"("tools":[{"type":"function","function":{"name":"f"}}])").rules.any());
}

TEST_F(StructuredRequests, UnknownFieldsAreAccepted) {
  EXPECT_FALSE(
      asked(R"("response_fromat":{"type":"json_object"},"x":[1],"user":"u","store":true)").rules.any());
  for (const char* name : {"add_generation_prompt", "max_tokens", "top_p", "add_special_tokens", "user",
                           "web_search_options", "messages"})
    EXPECT_TRUE(is_known_field(name)) << name;
  for (const char* name : {"", "response_fromat", "zzz", "Messages"})
    EXPECT_FALSE(is_known_field(name)) << name;
}

TEST_F(StructuredRequests, EveryDialectOfASchema) {
  const std::string schema = R"({"type":"object","properties":{"x":{"enum":[1,2]}},"required":["x"]})";
  for (const std::string& rest :
       {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":)" +
            schema + "}}",
        R"("response_format":{"type":"json_schema","json_schema":{"schema":)" + schema + "}}",
        R"("response_format":{"type":"json_schema","schema":)" + schema + "}",
        R"("response_format":{"type":"json_object","schema":)" + schema + "}", R"("guided_json":)" + schema,
        R"("guided_json":)" + dump_json(Json(schema)), R"("structured_outputs":{"json":)" + schema + "}",
        R"("extra_body":{"guided_json":)" + schema + "}"}) {
    const engine::Request& request = asked(rest);
    EXPECT_TRUE(takes(request, "let me see</think>{\"x\": 1}")) << rest;
    EXPECT_FALSE(takes(request, "let me see</think>{\"x\": 3}")) << rest;
  }
}

TEST_F(StructuredRequests, TheOtherFormats) {
  for (const char* rest :
       {R"("response_format":{"type":"json_object"})", R"("structured_outputs":{"json_object":true})"}) {
    EXPECT_TRUE(takes(asked(rest), "</think>{\"a\": [1]}")) << rest;
    EXPECT_FALSE(takes(asked(rest), "</think>[1]")) << rest;
  }
  for (const char* rest : {R"("guided_regex":"[0-9]{2}")", R"("structured_outputs":{"regex":"[0-9]{2}"})"}) {
    EXPECT_TRUE(takes(asked(rest), "</think>42")) << rest;
    EXPECT_FALSE(takes(asked(rest), "</think>421")) << rest;
  }
  for (const char* rest :
       {R"("guided_choice":["yes","no"])", R"("structured_outputs":{"choice":["yes","no"]})"}) {
    EXPECT_TRUE(takes(asked(rest), "</think>no")) << rest;
    EXPECT_FALSE(takes(asked(rest), "</think>maybe")) << rest;
  }
}

TEST_F(StructuredRequests, BeginAtOnceWhenThinkingIsOffAndInCompletions) {
  const engine::Request& off = asked(R"("guided_choice":["yes"],"reasoning_effort":"none")");
  EXPECT_FALSE(off.rules.thinking);
  EXPECT_TRUE(takes(off, "yes"));
  const engine::Request& raw = asked(R"("guided_choice":["yes"])", "/v1/completions");
  EXPECT_FALSE(raw.rules.thinking);
  EXPECT_TRUE(takes(raw, "yes"));
}

TEST_F(StructuredRequests, ForcedToolCalls) {
  const std::string f = "</think><tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>";
  const std::string g = "</think><tool_call>g<arg_key>b</arg_key><arg_value>true</arg_value></tool_call>";
  const engine::Request required = asked(kTools + R"(,"tool_choice":"required")");
  EXPECT_TRUE(takes(required, f));
  EXPECT_TRUE(takes(required, g));
  EXPECT_TRUE(takes(required, f + g.substr(8)));
  EXPECT_FALSE(takes(required, "</think>text"));
  EXPECT_FALSE(takes(required, "</think><tool_call>f</tool_call>"));
  const engine::Request one = asked(kTools + R"(,"tool_choice":"required","parallel_tool_calls":false)");
  EXPECT_TRUE(takes(one, f));
  EXPECT_FALSE(takes(one, f + g.substr(8)));
  for (
      const char* choice :
      {R"({"type":"function","function":{"name":"g"}})", R"({"type":"function","name":"g"})",
       R"({"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"g"}}]}})"}) {
    const engine::Request named = asked(kTools + R"(,"tool_choice":)" + choice);
    EXPECT_TRUE(takes(named, g)) << choice;
    EXPECT_FALSE(takes(named, f)) << choice;
  }
}

TEST_F(StructuredRequests, StrictToolsAndAllowedToolsUnderAuto) {
  const engine::Request free = asked(kTools);
  EXPECT_TRUE(takes(free, "</think>no call at all"));
  EXPECT_TRUE(takes(free, "</think><tool_call>f<arg_key>z</arg_key><arg_value>?</arg_value></tool_call>"));
  EXPECT_FALSE(takes(free, "</think><tool_call>g<arg_key>z</arg_key><arg_value>?</arg_value></tool_call>"));
  const engine::Request allowed = asked(
      kTools +
      R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f"}}]}})");
  EXPECT_TRUE(takes(allowed, "</think>no call at all"));
  EXPECT_TRUE(takes(allowed, "</think><tool_call>f</tool_call>"));
  EXPECT_FALSE(
      takes(allowed, "</think><tool_call>g<arg_key>b</arg_key><arg_value>true</arg_value></tool_call>"));
  const engine::Request format = asked(kTools + R"(,"guided_choice":["yes"])");
  EXPECT_TRUE(takes(format, "</think>yes"));
  EXPECT_TRUE(takes(format, "</think><tool_call>f</tool_call>"));
}

TEST_F(StructuredRequests, NoCallOpensWhenToolsAreOff) {
  const engine::Request& request = asked(kTools + R"(,"tool_choice":"none")");
  ASSERT_EQ(request.sampling.logit_bias.size(), 1u);
  EXPECT_EQ(request.sampling.logit_bias[0].first, harness_.model->control_ids.tool_call_open);
  EXPECT_TRUE(std::isinf(request.sampling.logit_bias[0].second));
  EXPECT_EQ(request.rules.tool_call_open, -1);
}

TEST_F(StructuredRequests, IgnoreEosOnlyPutsTheEndOff) {
  const engine::Request& request = asked(R"("guided_choice":["yes"],"ignore_eos":true,"max_tokens":9)");
  EXPECT_FALSE(request.stop.ignore_eos);
  EXPECT_EQ(request.stop.min_tokens, 9);
  EXPECT_TRUE(asked(R"("ignore_eos":true)").stop.ignore_eos);
}

TEST_F(StructuredRequests, ThinkingBudgetsByAnyName) {
  for (const char* rest :
       {R"("thinking_token_budget":7)", R"("thinking":{"type":"enabled","budget_tokens":7})",
        R"("reasoning":{"max_tokens":7})", R"("max_reasoning_tokens":7)", R"("reasoning_budget":7)",
        R"("extra_body":{"thinking_token_budget":7})", R"("thinking_token_budget":7,"reasoning_budget":7)"}) {
    const engine::Request& request = asked(rest);
    EXPECT_EQ(request.rules.thinking_budget, 7) << rest;
    EXPECT_TRUE(request.rules.thinking) << rest;
  }
  for (const char* rest :
       {R"("reasoning_budget":-1)", R"("thinking":{"type":"enabled","budget_tokens":0})"}) {
    EXPECT_EQ(asked(rest).rules.thinking_budget, -1) << rest;
    EXPECT_TRUE(asked(rest).rules.thinking) << rest;
  }
  for (const char* rest : {R"("reasoning_budget":0)", R"("thinking_token_budget":0)"})
    EXPECT_FALSE(asked(rest).rules.thinking) << rest;
}

TEST_F(StructuredRequests, TheSameSchemaIsCompiledOnce) {
  const auto first = asked(R"("guided_regex":"[a-z]+")").rules.grammar;
  EXPECT_EQ(asked(R"("guided_regex":"[a-z]+","n":2)").rules.grammar, first);
  EXPECT_NE(asked(R"("guided_regex":"[a-y]+")").rules.grammar, first);
}

}  // namespace
}  // namespace godwit::server::testing
