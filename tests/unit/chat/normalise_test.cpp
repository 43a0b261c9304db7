#include "chat/normalise.h"

#include <gtest/gtest.h>

namespace godwit::chat {
namespace {

Result<Conversation> run(std::string_view messages, std::string_view tools = "null") {
  Json tool_list = parse_json(tools).value();
  return normalise(parse_json(messages).value(), &tool_list);
}

std::string messages(std::string_view json, std::string_view tools = "null") {
  auto out = run(json, tools);
  return out.ok() ? dump_json(Json(out->messages)) : "refused: " + out.error().message;
}

std::string refused_field(std::string_view json, std::string_view tools = "null") {
  auto out = run(json, tools);
  if (out.ok()) return "accepted";
  EXPECT_EQ(out.error().code, ErrorCode::invalid_request);
  EXPECT_TRUE(out.error().message.starts_with(out.error().field)) << out.error().message;
  return out.error().field;
}

std::string assistant_call(std::string_view arguments) {
  return messages(
      R"([{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":)" +
      std::string(arguments) + "}}]}]");
}

std::string rendered_call(std::string_view arguments) {
  return R"([{"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": )" +
         std::string(arguments) + "}}]}]";
}

TEST(NormaliseCase, C16_ArgumentsStringBecomesAnObject) {
  EXPECT_EQ(assistant_call(R"("{\"city\":\"Oslo\",\"n\":1.0}")"),
            rendered_call(R"({"city": "Oslo", "n": 1.0})"));
  EXPECT_EQ(assistant_call(R"({"city":"Oslo"})"), rendered_call(R"({"city": "Oslo"})"));
  EXPECT_EQ(assistant_call(R"("{\"a\":1,\"b\":2,\"a\":3}")"), rendered_call(R"({"a": 3, "b": 2})"));
}

TEST(NormaliseCase, C17_NullAndEmptyArgumentsAreAnEmptyObject) {
  for (std::string_view arguments : {R"("null")", "null", R"("")", R"(" \n")"}) {
    EXPECT_EQ(assistant_call(arguments), rendered_call("{}")) << arguments;
  }
  EXPECT_EQ(
      messages(R"([{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}])"),
      R"([{"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]}])");
}

TEST(NormaliseCase, C18_MalformedArgumentsDoNotRejectTheConversation) {
  EXPECT_EQ(assistant_call(R"("{\"a\":")"), rendered_call(R"({"arguments": "{\"a\":"})"));
  EXPECT_EQ(assistant_call(R"("[1]")"), rendered_call(R"({"arguments": "[1]"})"));
  EXPECT_EQ(assistant_call("7"), rendered_call(R"({"arguments": 7})"));
  auto out = run(R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}])");
  ASSERT_TRUE(out.ok());
  ASSERT_EQ(out->warnings.size(), 1u);
  EXPECT_TRUE(out->warnings[0].starts_with("messages[0].tool_calls[0].function.arguments "));
}

TEST(NormaliseCase, C20_NullContentIsEmpty) {
  EXPECT_EQ(
      messages(R"([{"role":"user","content":null},{"role":"assistant"},{"role":"tool","content":null}])"),
      R"([{"role": "user", "content": ""}, {"role": "assistant", "content": ""}, {"role": "tool", "content": ""}])");
}

TEST(NormaliseCase, C22_C24_C25_ReasoningIsKeptUnderEitherName) {
  EXPECT_EQ(messages(R"([{"role":"assistant","content":"a","reasoning":" r\n"}])"),
            R"([{"role": "assistant", "content": "a", "reasoning_content": " r\n"}])");
  EXPECT_EQ(messages(R"([{"role":"assistant","content":"a","reasoning":"x","reasoning_content":""}])"),
            R"([{"role": "assistant", "content": "a", "reasoning_content": ""}])");
  EXPECT_EQ(
      messages(
          R"([{"role":"assistant","content":"a","reasoning_content":null,"reasoning":{"effort":"low"}}])"),
      R"([{"role": "assistant", "content": "a"}])");
  EXPECT_EQ(
      messages(
          R"([{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"reasoning","text":"u"},{"type":"redacted_thinking","data":"z"},{"type":"text","text":"a"}]}])"),
      R"([{"role": "assistant", "content": [{"type": "text", "text": "a"}], "reasoning_content": "tu"}])");
}

TEST(NormaliseCase, C27_ContentKeepsItsShape) {
  EXPECT_EQ(
      messages(
          R"([{"role":"user","content":"s"},{"role":"user","content":[{"type":"text","text":"a","cache_control":{}},"b"]}])"),
      R"([{"role": "user", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "a"}, "b"]}])");
}

TEST(NormaliseCase, C28_DeveloperIsSystemAndFunctionIsTool) {
  EXPECT_EQ(
      messages(
          R"([{"role":"developer","content":"Answer in French"},{"role":"function","name":"f","content":"1"}])"),
      R"([{"role": "system", "content": "Answer in French"}, {"role": "tool", "content": "1", "name": "f"}])");
  EXPECT_EQ(refused_field(R"([{"role":"user","content":"a"},{"role":"critic","content":"b"}])"),
            "messages[1].role");
}

TEST(NormaliseCase, C47_C76_HistoryTextIsNotTouched) {
  EXPECT_EQ(messages(R"([{"role":"assistant","content":"<think>a</think>b"}])"),
            R"([{"role": "assistant", "content": "<think>a</think>b"}])");
}

TEST(NormaliseCase, C66_C67_MediaIsReportedWithItsPath) {
  auto out = run(
      R"([{"role":"user","content":[{"type":"text","text":"<|image|>"},{"type":"image_url","image_url":{"url":"data:x"}}]},
                     {"role":"tool","content":[{"type":"input_image","image_url":"u"},{"type":"input_audio","input_audio":{}}]}])");
  ASSERT_TRUE(out.ok()) << out.error().message;
  ASSERT_EQ(out->media.size(), 3u);
  EXPECT_EQ(out->media[0].path, "messages[0].content[1]");
  EXPECT_EQ(out->media[0].kind, MediaPart::Kind::image);
  EXPECT_EQ(out->media[2].path, "messages[1].content[1]");
  EXPECT_EQ(out->media[2].kind, MediaPart::Kind::audio);
}

TEST(Normalise, ToolResultsBecomeText) {
  EXPECT_EQ(
      messages(
          R"([{"role":"tool","tool_call_id":"c1","content":{"t":21.5,"u":"°C"}},{"role":"tool","content":3}])"),
      R"([{"role": "tool", "content": "{\"t\": 21.5, \"u\": \"°C\"}", "tool_call_id": "c1"}, {"role": "tool", "content": "3"}])");
  EXPECT_EQ(
      messages(
          R"([{"role":"tool","content":[{"tool_call_id":"a","output":[{"type":"text","text":"x"}]},{"id":"b","output":{"k":1}}]}])"),
      R"([{"role": "tool", "content": [{"tool_call_id": "a", "output": [{"type": "text", "text": "x"}]}, {"id": "b", "output": "{\"k\": 1}"}]}])");
}

TEST(Normalise, ToolReferencesNeedTools) {
  std::string_view conversation = R"([{"role":"tool","content":[{"type":"tool_reference","name":"f"}]}])";
  EXPECT_EQ(messages(conversation, R"([{"function":{"name":"f"}}])"),
            R"([{"role": "tool", "content": [{"type": "tool_reference", "name": "f"}]}])");
  EXPECT_EQ(messages(conversation), R"([{"role": "tool", "content": [{"type": "text", "text": "f"}]}])");
}

TEST(Normalise, ExtraKeysAreDroppedAndLegacyCallsConverted) {
  EXPECT_EQ(
      messages(
          R"([{"role":"user","type":"text","name":"n","refusal":null,"annotations":[],"audio":null,"content":"q"},
                         {"role":"assistant","content":"","function_call":null,"tool_calls":[]},
                         {"role":"assistant","content":"","function_call":{"name":"f","arguments":"{\"a\":1}"}}])"),
      R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": ""}, {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]}])");
}

TEST(Normalise, ToolsKeepTheirKeyOrder) {
  auto out = run(
      R"([{"role":"user","content":"q"}])",
      R"([{"type":"function","defer_loading":true,"function":{"strict":true,"name":"f","parameters":null,"description":"d"}},
                     {"type":"function","name":"g","parameters":{"type":"object"}}])");
  ASSERT_TRUE(out.ok()) << out.error().message;
  EXPECT_EQ(
      dump_json(Json(out->tools)),
      R"([{"type": "function", "function": {"strict": true, "name": "f", "description": "d", "defer_loading": true}}, )"
      R"({"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}}])");
  EXPECT_TRUE(run(R"([{"role":"user","content":"q"}])", "[]")->tools.empty());
}

TEST(Normalise, NamesTheFieldOfABadRequest) {
  const std::pair<std::string_view, std::string_view> kRows[] = {
      {R"("hi")", "messages"},
      {"[]", "messages"},
      {"[5]", "messages[0]"},
      {R"([{"content":"x"}])", "messages[0].role"},
      {R"([{"role":3,"content":"x"}])", "messages[0].role"},
      {R"([{"role":"user","content":5}])", "messages[0].content"},
      {R"([{"role":"user","content":{"type":"text","text":"x"}}])", "messages[0].content"},
      {R"([{"role":"user","content":[1]}])", "messages[0].content[0]"},
      {R"([{"role":"user","content":[{"text":"x"}]}])", "messages[0].content[0].type"},
      {R"([{"role":"user","content":[{"type":7}]}])", "messages[0].content[0].type"},
      {R"([{"role":"user","content":["a",{"type":"text"}]}])", "messages[0].content[1].text"},
      {R"([{"role":"user","content":[{"type":"text","text":1}]}])", "messages[0].content[0].text"},
      {R"([{"role":"user","content":[{"type":"file","file":{}}]}])", "messages[0].content[0].type"},
      {R"([{"role":"user","content":[{"type":"thinking","thinking":"x"}]}])", "messages[0].content[0].type"},
      {R"([{"role":"tool","content":[{"output":[{"output":"x"}]}]}])", "messages[0].content[0].output"},
      {R"([{"role":"tool","content":"x","tool_call_id":5}])", "messages[0].tool_call_id"},
      {R"([{"role":"assistant","tool_calls":{}}])", "messages[0].tool_calls"},
      {R"([{"role":"assistant","tool_calls":[1]}])", "messages[0].tool_calls[0]"},
      {R"([{"role":"assistant","tool_calls":[{"function":{}}]}])",
       "messages[0].tool_calls[0].function.name"}};
  for (const auto& [json, field] : kRows) EXPECT_EQ(refused_field(json), field) << json;

  const std::pair<std::string_view, std::string_view> kTools[] = {
      {"{}", "tools"},
      {"[1]", "tools[0]"},
      {R"([{"type":"web_search"}])", "tools[0].type"},
      {R"([{"type":"function","function":1}])", "tools[0].function"},
      {R"([{"type":"function","function":{}}])", "tools[0].function.name"},
      {R"([{"type":"function","function":{"name":""}}])", "tools[0].function.name"},
      {R"([{"type":"function","function":{"name":" f"}}])", "tools[0].function.name"},
      {R"([{"type":"function","function":{"name":"f","parameters":[]}}])", "tools[0].function.parameters"}};
  for (const auto& [json, field] : kTools) {
    EXPECT_EQ(refused_field(R"([{"role":"user","content":"q"}])", json), field) << json;
  }
}

}  // namespace
}  // namespace godwit::chat
