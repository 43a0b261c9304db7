// /v1/responses: streams against bodies, items, the store, errors (api spec §4.10).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "named_events.h"

namespace godwit::server::testing {
namespace {

using ::testing::HasSubstr;

const char* const kTools =
    R"("tools":[{"type":"function","name":"get_weather","parameters":{"type":"object","properties":)"
    R"({"city":{"type":"string"},"days":{"type":"integer"}}}}])";

std::string body(std::string_view rest) {
  return R"({"input":"Hi")" + (rest.empty() ? "" : "," + std::string(rest)) + "}";
}

class Responses : public ::testing::Test {
 protected:
  Answer post(std::string_view request) { return harness_.post("/v1/responses", request); }
  Json response(std::string_view request) {
    const Answer answer = post(request);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
  std::string prompt() const { return harness_.model->tokenizer->decode(last_.prompt); }
  Answer remove(std::string_view id) {
    Client client(harness_.port());
    client.send(request_text("DELETE", "/v1/responses/" + std::string(id)));
    return client.receive();
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

// The response that a stream's events build up to, checked against what the last event says.
Json built(const std::vector<Json>& events) {
  JsonArray output;
  int64_t number = 0;
  for (const Json& event : events) {
    EXPECT_EQ(event.find("sequence_number")->as_integer(), number++);
    const std::string& type = type_of(event);
    if (const Json* at = event.find("output_index")) {
      EXPECT_EQ(at->as_integer(),
                static_cast<int64_t>(output.size()) - (type == "response.output_item.added" ? 0 : 1));
    }
    const auto text = [&]() -> Json& {
      Json& item = output.back();
      if (Json* arguments = item.as_object().find("arguments")) return *arguments;
      return *item.as_object().find("content")->as_array().at(0).as_object().find("text");
    };
    if (const Json* id = event.find("item_id")) {
      EXPECT_EQ(*id, *output.back().find("id"));
    }
    if (type == "response.output_item.added") output.push_back(*event.find("item"));
    if (type.ends_with("_part.added"))
      output.back().as_object().find("content")->as_array().push_back(*event.find("part"));
    if (type.ends_with(".delta")) text().as_string() += event.find("delta")->as_string();
    if (type.ends_with("_text.done")) {
      EXPECT_EQ(text(), *event.find("text"));
    }
    if (type == "response.function_call_arguments.done") {
      EXPECT_EQ(text(), *event.find("arguments"));
    }
    if (type == "response.output_item.done") {
      output.back().as_object().set("status", *event.find("item")->find("status"));
      EXPECT_EQ(output.back(), *event.find("item"));
    }
  }
  EXPECT_EQ(type_of(events[0]), "response.created");
  EXPECT_EQ(type_of(events[1]), "response.in_progress");
  const Json& last = *events.back().find("response");
  EXPECT_EQ(Json(output), *last.find("output"));
  EXPECT_EQ(type_of(events.back()), "response." + text_at(last, "status"));
  return last;
}

// Ids, times and seeds are drawn for each answer.
Json comparable(Json response) {
  for (const char* key : {"id", "created_at", "seed"}) response.as_object().set(key, 0);
  for (Json& item : response.as_object().find("output")->as_array()) {
    item.as_object().set("id", 0);
    if (item.find("call_id")) item.as_object().set("call_id", 0);
  }
  return response;
}

TEST_F(Responses, ToolsThatRunElsewhereAreLeftOut) {
  response(
      R"({"input":"Hi","tools":[{"type":"web_search"},{"type":"function","name":"weather","parameters":{}},)"
      R"({"type":"custom","name":"patch"}]})");
  EXPECT_THAT(prompt(), ::testing::HasSubstr("weather"));
  EXPECT_THAT(prompt(), ::testing::Not(::testing::HasSubstr("patch")));
  response(R"({"input":"Hi","tools":[{"type":"web_search"}],"tool_choice":"auto"})");
}

TEST_F(Responses, StreamsBuildTheBody) {
  for (const std::string& sample : output_samples()) {
    for (const char* limit : {"", R"(,"max_output_tokens":6)"}) {
      SCOPED_TRACE(sample + limit);
      output_ = sample;
      const std::string request = std::string(kTools) + R"(,"metadata":{"k":"v"})" + limit;
      const Json whole = response(body(request));
      const Json streamed = built(named_events(post(body(request + R"(,"stream":true)"))));
      EXPECT_EQ(comparable(streamed), comparable(whole));
    }
  }
}

TEST_F(Responses, C26NothingThoughtIsNoReasoningItem) {
  output_ = "</think><tool_call>get_weather</tool_call><|observation|>";
  for (const Json& event : named_events(post(body(std::string(kTools) + R"(,"stream":true)"))))
    EXPECT_THAT(type_of(event), ::testing::Not(HasSubstr("reasoning")));
}

TEST_F(Responses, C86UsageIsComplete) {
  script_.cached_tokens = 4;
  const Json usage = *response(body("")).find("usage");
  const auto n = [](const Json& object, const char* key) { return object.find(key)->as_integer(); };
  EXPECT_EQ(n(usage, "input_tokens"), static_cast<int64_t>(last_.prompt.size()));
  EXPECT_EQ(n(usage, "output_tokens"), static_cast<int64_t>(script_.ids.size()));
  EXPECT_EQ(n(usage, "total_tokens"), n(usage, "input_tokens") + n(usage, "output_tokens"));
  EXPECT_EQ(n(*usage.find("input_tokens_details"), "cached_tokens"), 4);
  EXPECT_EQ(n(*usage.find("output_tokens_details"), "reasoning_tokens"),
            static_cast<int64_t>(harness_.ids("plan").size()));
}

TEST_F(Responses, LengthIsIncomplete) {
  const Json json = response(body(R"("max_output_tokens":1)"));
  EXPECT_EQ(text_at(json, "status"), "incomplete");
  EXPECT_EQ(text_at(*json.find("incomplete_details"), "reason"), "max_output_tokens");
}

TEST_F(Responses, AFailureIsTheLastEvent) {
  script_.fail_after = 2;
  const auto events = named_events(post(body(R"("stream":true)")));
  const Json& last = events.back();
  EXPECT_EQ(type_of(last), "response.failed");
  EXPECT_EQ(text_at(*last.find("response"), "status"), "failed");
  EXPECT_THAT(text_at(*last.find("response")->find("error"), "message"), HasSubstr("the engine failed"));
  EXPECT_EQ(harness_.get("/v1/responses/" + text_at(*last.find("response"), "id")).status, 404);
}

TEST_F(Responses, C48ItemsBecomeTheTemplatesMessages) {
  response(
      R"({"instructions":"Be brief.",)" + std::string(kTools) +
      R"(,"input":[{"role":"developer","content":"D"},{"type":"message","role":"user","content":)"
      R"([{"type":"input_text","text":"Q"}]},{"type":"reasoning","id":"rs_1","summary":[],"content":)"
      R"([{"type":"reasoning_text","text":"T1"}]},{"type":"message","role":"assistant","status":"completed",)"
      R"("content":[{"type":"output_text","text":"A","annotations":[]}]},{"type":"function_call","call_id":"c1",)"
      R"("name":"get_weather","arguments":"{\"city\":\"Oslo\"}"},{"type":"function_call","call_id":"c2",)"
      R"("name":"get_weather","arguments":"{broken"},{"type":"function_call_output","call_id":"c1","output":"R1"},)"
      R"({"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"R2"}]},)"
      R"({"type":"message","role":"assistant","content":[]},{"role":"user","content":"and?"}]})");
  EXPECT_THAT(prompt(), HasSubstr("<|system|>Be brief.<|system|>D<|user|>Q<|assistant|><think>T1</think>A"
                                  "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value>"
                                  "</tool_call><tool_call>get_weather<arg_key>arguments</arg_key>"
                                  "<arg_value>{broken</arg_value></tool_call><|observation|>"
                                  "<tool_response>R1</tool_response><tool_response>R2</tool_response>"
                                  "<|assistant|><think></think><|user|>and?<|assistant|><think>"));
}

TEST_F(Responses, AConversationGoesOnFromAStoredResponse) {
  output_ =
      "T</think>A<tool_call>get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value></"
      "tool_call><|observation|>";
  const Json first = response(body(std::string(kTools) + R"(,"instructions":"Once only.","stream":false)"));
  const std::string id = text_at(first, "id");
  EXPECT_EQ(harness_.get("/v1/responses/" + id).json(), first);
  const std::string call = text_at(first.find("output")->as_array().back(), "call_id");
  output_ = "</think>Fine.<|user|>";
  const Json second =
      response(std::string("{") + kTools + R"(,"previous_response_id":")" + id +
               R"(","input":[{"type":"function_call_output","call_id":")" + call + R"(","output":"R1"}]})");
  EXPECT_THAT(
      prompt(),
      HasSubstr("<|user|>Hi<|assistant|><think>T</think>A<tool_call>get_weather<arg_key>city</arg_key>"
                "<arg_value>Oslo</arg_value></tool_call><|observation|>"
                "<tool_response>R1</tool_response><|assistant|><think>"));
  EXPECT_THAT(prompt(), ::testing::Not(HasSubstr("Once only.")));
  EXPECT_EQ(text_at(second, "previous_response_id"), id);

  response(R"({"input":"more","previous_response_id":")" + text_at(second, "id") + "\"}");
  EXPECT_THAT(prompt(), HasSubstr("R1</tool_response><|assistant|><think></think>Fine.<|user|>more"));

  EXPECT_EQ(remove(id).json(),
            *parse_json(R"({"id":")" + id + R"(","object":"response.deleted","deleted":true})"));
  EXPECT_EQ(remove(id).status, 404);
  EXPECT_EQ(harness_.get("/v1/responses/" + id).status, 404);
  const Answer gone = post(body(R"("previous_response_id":")" + id + "\""));
  EXPECT_EQ(gone.status, 404);
  EXPECT_EQ(text_at(*gone.json().find("error"), "param"), "previous_response_id");
}

TEST_F(Responses, StreamsAreStoredToo) {
  const Json streamed = built(named_events(post(body(R"("stream":true)"))));
  EXPECT_EQ(harness_.get("/v1/responses/" + text_at(streamed, "id")).json(), streamed);
}

TEST_F(Responses, OnlyWhatIsToBeStoredIsStoredAndSaltsKeepApart) {
  const std::string unstored = text_at(response(body(R"("store":false)")), "id");
  EXPECT_EQ(harness_.get("/v1/responses/" + unstored).status, 404);
  const std::string salted = text_at(response(body(R"("cache_salt":"a")")), "id");
  const auto follow = [&](std::string_view salt) {
    return post(body(R"("previous_response_id":")" + salted + "\"" + std::string(salt))).status;
  };
  EXPECT_EQ(follow(""), 404);
  EXPECT_EQ(follow(R"(,"cache_salt":"b")"), 404);
  EXPECT_EQ(follow(R"(,"cache_salt":"a")"), 200);
}

TEST_F(Responses, RefusalsNameTheField) {
  const auto item = [](std::string_view text) { return R"({"input":[)" + std::string(text) + "]}"; };
  const std::tuple<std::string, const char*, const char*> table[] = {
      {"{}", "input", "is required"},
      {R"({"input":[]})", "input", "must not be empty"},
      {R"({"input":7})", "input", "a string or a list"},
      {item("7"), "input[0]", "must be an object"},
      {item(R"({"type":7})"), "input[0].type", "must be a string"},
      {item(R"({"type":"web_search_call"})"), "input[0].type", "web_search_call"},
      {item(R"({"type":"item_reference","id":"x"})"), "input[0].type", "send the item itself"},
      {item(R"({"content":"x"})"), "input[0].role", "is required"},
      {item(R"({"role":"wizard","content":"x"})"), "input[0].role", "wizard"},
      {item(R"({"role":"user","content":7})"), "input[0].content", "a string or a list"},
      {item(R"({"role":"user","content":[7]})"), "input[0].content[0]", "must be an object"},
      {item(R"({"role":"user","content":[{"type":"input_image","image_url":"x"}]})"), "input[0].content[0]",
       "media input is not available"},
      {item(R"({"role":"user","content":[{"type":"smell"}]})"), "input[0].content[0].type", "smell"},
      {item(R"({"role":"user","content":[{"type":"input_text"}]})"), "input[0].content[0].text",
       "is required"},
      {item(R"({"type":"reasoning","content":7})"), "input[0].content", "must be a list"},
      {item(R"({"type":"reasoning","summary":[{}]})"), "input[0].summary[0].text", "is required"},
      {item(R"({"type":"function_call","name":"f"})"), "input[0].call_id", "is required"},
      {item(R"({"type":"function_call","call_id":"c"})"), "input[0].name", "is required"},
      {item(R"({"type":"function_call_output","output":"x"})"), "input[0].call_id", "is required"},
      {body(R"("instructions":7)"), "instructions", "must be a string"},
      {body(R"("background":true)"), "background", "must be false"},
      {body(R"("conversation":"c")"), "conversation", "not supported"},
      {body(R"("prompt":{"id":"p"})"), "prompt", "not supported"},
      {body(R"("truncation":"middle")"), "truncation", "auto or disabled"},
      {body(R"("top_logprobs":3)"), "top_logprobs", "must be 0"},
      {body(R"("store":"yes")"), "store", "true or false"},
      {body(R"("metadata":[])"), "metadata", "must be an object"},
      {body(R"("metadata":{"k":1})"), "metadata.k", "must be a string"},
      {body(R"("max_output_tokens":0)"), "max_output_tokens", "at least 1"},
      {body(R"("tools":7)"), "tools", "must be an array"},
      {body(R"("tools":[{"name":"x"}])"), "tools[0].type", "is required"},
      {body(R"("tools":[{"type":"web_search"}],"tool_choice":"required")"), "tool_choice",
       "together with tools"},
      {body(R"("tools":[{"type":"function"}])"), "tools[0].name", "must be a string"},
      {body(R"("tools":[{"type":"function","name":"f","parameters":7}])"), "tools[0].parameters", "object"},
      {body(R"("tool_choice":"sometimes",)" + std::string(kTools)), "tool_choice", "sometimes"},
      {body(R"("text":7)"), "text", "must be an object"},
      {body(R"("text":{"format":{}})"), "text.format.type", "is required"},
      {body(R"("reasoning":7)"), "reasoning", "must be an object"},
      {body(R"("reasoning":{"effort":"enormous"})"), "reasoning.effort", "enormous"},
      {body(R"("temperature":9)"), "temperature", "at most 2"},
      {body(R"("previous_response_id":7)"), "previous_response_id", "must be a string"},
  };
  for (const auto& [request, param, says] : table) {
    SCOPED_TRACE(request);
    const Answer answer = post(request);
    EXPECT_EQ(answer.status, 400) << answer.body;
    const Json json = answer.json();
    ASSERT_NE(json.find("error"), nullptr) << answer.body;
    EXPECT_EQ(text_at(*json.find("error"), "param"), param);
    EXPECT_THAT(text_at(*json.find("error"), "message"), HasSubstr(says));
  }
}

TEST(ResponseStore, IsBoundedByCountAndBytesAndForgetsTheOldest) {
  ResponseStore store(2, 1 << 20);
  const auto has = [&](const char* id) { return store.find(id, "k") != nullptr; };
  store.put("a", {"k", 0, "A", "[]"});
  store.put("b", {"k", 0, "B", "[]"});
  EXPECT_TRUE(has("a"));  // used: "b" is older now
  store.put("c", {"k", 0, "C", "[]"});
  EXPECT_TRUE(has("a") && has("c"));
  EXPECT_FALSE(has("b"));
  EXPECT_EQ(store.find("a", "other"), nullptr);
  EXPECT_FALSE(store.erase("a", "other"));

  ResponseStore small(100, 4096);
  small.put("a", {"", 0, std::string(3000, 'x'), ""});
  small.put("b", {"", 0, std::string(5000, 'x'), ""});  // larger than all of it: not kept, nothing makes room
  EXPECT_NE(small.find("a", ""), nullptr);
  EXPECT_EQ(small.find("b", ""), nullptr);
  small.put("c", {"", 0, std::string(3000, 'x'), ""});
  EXPECT_EQ(small.find("a", ""), nullptr);
  EXPECT_NE(small.find("c", ""), nullptr);

  ResponseStore none(0, 1 << 20);
  none.put("a", {"", 0, "A", "[]"});
  EXPECT_EQ(none.find("a", ""), nullptr);
}

}  // namespace
}  // namespace godwit::server::testing
