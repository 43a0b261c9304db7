// /v1/messages: what requests become, streams against bodies, stop reasons, errors, counting (api spec
// §4.11).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chat/normalise.h"
#include "named_events.h"
#include "server/messages_chat.h"

namespace godwit::server::testing {
namespace {

using ::testing::HasSubstr;

const char* const kTools = R"("tools":[{"name":"get_weather","input_schema":{"type":"object","properties":)"
                           R"({"city":{"type":"string"},"days":{"type":"integer"}}}}])";

std::string body(std::string_view rest) {
  return R"({"max_tokens":500,"messages":[{"role":"user","content":"Hi"}])" +
         (rest.empty() ? "" : "," + std::string(rest)) + "}";
}

class Messages : public ::testing::Test {
 protected:
  Answer post(std::string_view request) { return harness_.post("/v1/messages", request); }
  Json message(std::string_view request) {
    const Answer answer = post(request);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
  std::string prompt_of(std::string_view request) {
    EXPECT_EQ(post(request).status, 200);
    return harness_.model->tokenizer->decode(last_.prompt);
  }
  Harness harness_{[this](const engine::Request& request) {
    last_ = request;
    last_.sink = nullptr;
    script_.ids = harness_.ids(output_);
    return script_;
  }};
  std::string output_ = "plan</think>Done.<|user|>";
  Script script_;
  engine::Request last_;
};

// The content that a stream's events build; checks their order on the way.
Json built(const std::vector<Json>& events) {
  JsonArray content;
  Json message;
  bool open = false;
  std::string input;
  for (const Json& event : events) {
    const std::string& type = type_of(event);
    if (type == "message_start") message = *event.find("message");
    if (type.starts_with("content_block")) {
      EXPECT_EQ(event.find("index")->as_integer(), static_cast<int64_t>(content.size()) - (open ? 1 : 0));
    }
    if (type == "content_block_start") {
      EXPECT_FALSE(open);
      open = true;
      input.clear();
      content.push_back(*event.find("content_block"));
    } else if (type == "content_block_delta") {
      EXPECT_TRUE(open);
      const Json& delta = *event.find("delta");
      for (const char* key : {"text", "thinking", "signature"}) {
        if (const Json* piece = delta.find(key))
          content.back().as_object().find(key)->as_string() += piece->as_string();
      }
      input += text_at(delta, "partial_json");
    } else if (type == "content_block_stop") {
      EXPECT_TRUE(open);
      open = false;
      if (!input.empty()) content.back().as_object().set("input", *parse_json(input));
    } else if (type == "message_delta") {
      for (const auto& [key, value] : event.find("delta")->as_object()) message.as_object().set(key, value);
      message.as_object().set("usage", *event.find("usage"));
    }
  }
  EXPECT_FALSE(open);
  EXPECT_EQ(type_of(events.front()), "message_start");
  EXPECT_EQ(type_of(events.back()), "message_stop");
  message.as_object().set("content", std::move(content));
  return message;
}

// Ids are drawn for each answer.
Json without_ids(Json message) {
  message.as_object().erase("id");
  for (Json& block : message.as_object().find("content")->as_array()) {
    if (block.find("id")) block.as_object().set("id", "x");
    if (block.find("signature")) {
      EXPECT_NE(block.find("signature")->as_string(), "");
      block.as_object().set("signature", "x");
    }
  }
  return message;
}

TEST_F(Messages, StreamsBuildTheBody) {
  for (const std::string& sample : output_samples()) {
    for (const char* thinking : {"", R"(,"thinking":{"type":"enabled","budget_tokens":0})"}) {
      SCOPED_TRACE(sample + thinking);
      output_ = sample;
      script_.cached_tokens = 3;
      const std::string request = std::string(kTools) + thinking;
      const Json whole = message(body(request));
      const auto events = named_events(post(body(request + R"(,"stream":true)")));
      EXPECT_EQ(without_ids(built(events)), without_ids(whole));
      // C64: the first event has the real numbers.
      const Json& usage = *events[0].find("message")->find("usage");
      EXPECT_EQ(usage.find("input_tokens")->as_integer(), static_cast<int64_t>(last_.prompt.size()) - 3);
      EXPECT_EQ(usage.find("cache_read_input_tokens")->as_integer(), 3);
    }
  }
}

TEST_F(Messages, C50TheMessageObjectIsComplete) {
  const Json json = message(body(""));
  for (const char* key : {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"})
    EXPECT_NE(json.find(key), nullptr) << key;
  EXPECT_TRUE(json.find("stop_sequence")->is_null());
  EXPECT_EQ(text_at(json, "type"), "message");
  EXPECT_EQ(text_at(json, "role"), "assistant");
  EXPECT_EQ(text_at(json, "stop_reason"), "end_turn");
}

TEST_F(Messages, ThinkingIsShownOnlyToThoseWhoAsk) {
  const auto first = [&](std::string_view rest) {
    return text_at(message(body(rest)).find("content")->as_array()[0], "type");
  };
  EXPECT_EQ(first(""), "text");
  // C49: types of tomorrow, too.
  for (const char* type : {"enabled", "adaptive", "profound"})
    EXPECT_EQ(first(std::string(R"("thinking":{"type":")") + type + "\"}"), "thinking") << type;
  output_ = "Done.<|user|>";
  EXPECT_EQ(first(R"("thinking":{"type":"disabled"})"), "text");
  EXPECT_THAT(harness_.model->tokenizer->decode(last_.prompt), ::testing::EndsWith("</think>"));
}

TEST_F(Messages, StopReasons) {
  const auto reason = [&](std::string_view rest) {
    const Json json = message(body(rest));
    return text_at(json, "stop_reason") + "/" + text_at(json, "stop_sequence");
  };
  output_ = "STOP</think>one STOP two<|user|>";
  EXPECT_EQ(reason(R"("stop_sequences":["STOP"])"), "stop_sequence/STOP");  // C32: not in the thinking
  EXPECT_EQ(reason(""), "end_turn/");
  output_ = "a b c d e f g h i j</think>k<|user|>";
  EXPECT_EQ(
      text_at(post(R"({"max_tokens":2,"messages":[{"role":"user","content":"Hi"}]})").json(), "stop_reason"),
      "max_tokens");
  output_ = "</think><tool_call>get_weather</tool_call><|observation|>";
  EXPECT_EQ(reason(kTools), "tool_use/");
  EXPECT_EQ(reason(""), "end_turn/");  // C03: never tool_use without a block
}

TEST_F(Messages, BlocksBecomeTheTemplatesMessages) {
  const std::string prompt = prompt_of(
      R"({"max_tokens":9,"system":[{"type":"text","text":"x-anthropic-billing-header: 77aa"},)"
      R"({"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],)" +
      std::string(kTools) +
      R"(,"messages":[{"role":"user","content":[{"type":"text","text":"Q"},)"
      R"({"type":"document","source":{"type":"text","media_type":"text/plain","data":"DOC"}}]},)"
      R"({"role":"assistant","content":[{"type":"thinking","thinking":"T1","signature":"s"},)"
      R"({"type":"redacted_thinking","data":"zz"},{"type":"text","text":"A"},)"
      R"({"type":"tool_use","id":"c1","name":"get_weather","input":{"city":"Oslo","days":3}}]},)"
      R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"R1"}]},)"
      R"({"type":"text","text":"and?"}]}]})");
  EXPECT_THAT(prompt,
              HasSubstr("<|system|>Be brief.<|user|>QDOC<|assistant|><think>T1</think>A"
                        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value>"
                        "<arg_key>days</arg_key><arg_value>3</arg_value></tool_call>"
                        "<|observation|><tool_response>R1</tool_response><|user|>and?<|assistant|><think>"));
  EXPECT_THAT(prompt, ::testing::Not(HasSubstr("billing")));
}

TEST(MessagesAsChat, ToolsMayBeLoadedLater) {
  const Json request = *parse_json(
      R"({"tools":[{"name":"later","defer_loading":true,"input_schema":{"type":"object"}},)"
      R"({"type":"web_search_20250305","name":"web_search"}],"messages":[{"role":"user","content":"Q"},)"
      R"({"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"search","input":{}}]},)"
      R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":)"
      R"([{"type":"text","text":"found"},{"type":"tool_reference","tool_name":"later"}]}]}]})");
  const auto chat = chat_of_messages(request);
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  // What Anthropic's servers would run is left out; a result with both is one message with two outputs.
  EXPECT_EQ(*chat->find("tools"),
            *parse_json(R"([{"type":"function","function":{"name":"later","parameters":{"type":"object"},)"
                        R"("defer_loading":true}}])"));
  EXPECT_EQ(*chat->find("messages")->as_array().back().find("content"),
            *parse_json(R"([{"tool_call_id":"c1","output":[{"type":"text","text":"found"}]},)"
                        R"({"tool_call_id":"c1","output":[{"type":"tool_reference","name":"later"}]}])"));
  EXPECT_TRUE(chat::normalise(*chat->find("messages"), chat->find("tools")).ok());
}

TEST_F(Messages, CountTokensIsExact) {
  const std::string request = body(std::string(kTools) + R"(,"system":"Be brief.")");
  const Json counted = harness_.post("/v1/messages/count_tokens", request).json();
  EXPECT_EQ(post(request).status, 200);
  EXPECT_EQ(counted.find("input_tokens")->as_integer(), static_cast<int64_t>(last_.prompt.size()));
}

TEST_F(Messages, C83TheContextErrorIsInTheWordsThatTriggerCompaction) {
  std::string words;
  for (int i = 0; i < 5000; ++i) words += "word ";
  const Answer answer = post(R"({"max_tokens":5,"messages":[{"role":"user","content":")" + words + R"("}]})");
  EXPECT_EQ(answer.status, 400);
  const Json json = answer.json();
  EXPECT_EQ(text_at(json, "type"), "error");
  EXPECT_EQ(text_at(*json.find("error"), "type"), "invalid_request_error");
  EXPECT_THAT(text_at(*json.find("error"), "message"),
              ::testing::MatchesRegex("prompt is too long: [0-9]+ tokens > 4096 maximum"));
  EXPECT_EQ(text_at(json, "request_id"), answer.header("x-request-id"));
  EXPECT_EQ(text_at(json, "request_id"), answer.header("request-id")) << "where Anthropic's clients look";
}

TEST_F(Messages, AnErrorInAStreamIsItsLastEvent) {
  script_.fail_after = 2;
  const auto events = named_events(post(body(R"("stream":true)")));
  EXPECT_EQ(type_of(events.front()), "message_start");
  EXPECT_EQ(text_at(*events.back().find("error"), "type"), "api_error");
  EXPECT_THAT(text_at(*events.back().find("error"), "message"), HasSubstr("the engine failed"));
  EXPECT_NE(text_at(events.back(), "request_id"), "");
}

TEST_F(Messages, RefusalsNameThePathAndHaveAnthropicsShape) {
  const auto user = [](std::string_view block) {
    return R"({"messages":[{"role":"user","content":[)" + std::string(block) + "]}]}";
  };
  const auto assistant = [](std::string_view block) {
    return R"({"messages":[{"role":"assistant","content":[)" + std::string(block) + "]}]}";
  };
  const std::pair<std::string, const char*> table[] = {
      {"{}", "messages is required"},
      {R"({"messages":[]})", "messages must not be empty"},
      {R"({"messages":"Hi"})", "messages must be an array"},
      {R"({"messages":[3]})", "messages[0] must be an object"},
      {R"({"messages":[{"content":"Hi"}]})", "messages[0].role is required"},
      {R"({"messages":[{"role":"tool","content":"Hi"}]})", "messages[0].role must be user, assistant"},
      {R"({"messages":[{"role":"user"}]})", "messages[0].content is required"},
      {R"({"messages":[{"role":"user","content":4}]})", "messages[0].content must be a string or a list"},
      {user("5"), "messages[0].content[0] must be an object"},
      {user("{}"), "messages[0].content[0].type is required"},
      {user(R"({"type":"hologram"})"), "messages[0].content[0].type is \"hologram\""},
      {user(R"({"type":"text"})"), "messages[0].content[0].text is required"},
      {user(R"({"type":"text","text":1})"), "messages[0].content[0].text must be a string"},
      {user(R"({"type":"image","source":{}})"), "messages[0].content[0] is an image; media input is not"},
      {user(R"({"type":"document","source":{"type":"base64","data":"x"}})"),
       "messages[0].content[0].source.type must be \"text\""},
      {user(R"({"type":"tool_use","id":"a","name":"b"})"), "messages[0].content[0].type is \"tool_use\""},
      {user(R"({"type":"tool_result"})"), "messages[0].content[0].tool_use_id is required"},
      {user(R"({"type":"tool_result","tool_use_id":"a","content":[{"type":"image"}]})"),
       "messages[0].content[0].content[0] is an image"},
      {user(R"({"type":"tool_result","tool_use_id":"a","content":[{"type":"x"}]})"),
       "messages[0].content[0].content[0].type is \"x\""},
      {assistant(R"({"type":"tool_use","name":"b"})"), "messages[0].content[0].id is required"},
      {assistant(R"({"type":"tool_use","id":"a"})"), "messages[0].content[0].name is required"},
      {assistant(R"({"type":"thinking"})"), "messages[0].content[0].thinking is required"},
      {assistant(R"({"type":"server_tool_use"})"), "messages[0].content[0].type is \"server_tool_use\""},
      {body(R"("system":7)"), "system must be a string or a list of text blocks"},
      {body(R"("system":[{"type":"image"}])"), "system[0].type is \"image\""},
      {body(R"("max_tokens":0)"), "max_tokens must be at least 1"},
      {body(R"("stop_sequences":[1])"), "stop_sequences[0] must be a string"},
      {body(R"("temperature":9)"), "temperature must be"},
      {body(R"("tools":{})"), "tools must be an array"},
      {body(R"("tools":[{"name":"f"}])"), "tools[0].input_schema is required"},
      {body(R"("tools":[{"input_schema":{}}])"), "tools[0].name must be a string"},
      {body(R"("tools":[{"name":"f","input_schema":3}])"), "tools[0].input_schema must be an object"},
      {body(R"("tool_choice":"auto")"), "tool_choice must be an object"},
      {body(R"("tool_choice":{"type":"some"})"), "tool_choice.type must be auto, any, tool or none"},
      {body(R"("tool_choice":{"type":"tool"})"), "tool_choice.name is required"},
      {body(R"("tool_choice":{"type":"none","disable_parallel_tool_use":1})"),
       "tool_choice.disable_parallel_tool_use must be true or false"},
      {body(R"("thinking":true)"), "thinking must be an object"},
      {body(R"("thinking":{})"), "thinking.type is required"},
      {body(R"("thinking":{"type":"enabled","budget_tokens":-1})"),
       "thinking.budget_tokens must be at least 0"},
      {body(R"("output_config":[])"), "output_config must be an object"},
      {body(R"("output_config":{"effort":"enormous"})"), "output_config.effort is \"enormous\""},
      {body(R"("output_config":{"format":{}})"), "output_config.format.type is required"},
  };
  for (const auto& [request, says] : table) {
    SCOPED_TRACE(request);
    const Answer answer = post(request);
    EXPECT_EQ(answer.status, 400) << answer.body;
    const Json json = answer.json();
    ASSERT_NE(json.find("error"), nullptr) << answer.body;
    EXPECT_EQ(text_at(json, "type"), "error");
    EXPECT_EQ(text_at(*json.find("error"), "type"), "invalid_request_error");
    EXPECT_THAT(text_at(*json.find("error"), "message"), ::testing::StartsWith(says));
    EXPECT_EQ(harness_.post("/v1/messages/count_tokens", request).status,
              std::string_view(says).starts_with("max_tokens") ||
                      std::string_view(says).starts_with("stop_s") ||
                      std::string_view(says).starts_with("temperature")
                  ? 200
                  : 400);
  }
  EXPECT_EQ(post(body(R"("model":"nobody")")).json().find("error")->find("type")->as_string(),
            "not_found_error");
  harness_.service->refuse_ = true;
  EXPECT_EQ(post(body("")).json().find("error")->find("type")->as_string(), "rate_limit_error");
}

}  // namespace
}  // namespace godwit::server::testing
