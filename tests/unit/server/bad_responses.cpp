// /v1/responses.
#include <fmt/format.h>

#include "bad_requests.h"

namespace godwit::server::testing {
namespace {

std::string input(std::string_view value) {
  return fmt::format(R"({{"input":{}}})", value);
}
// One item of these members.
std::string item(std::string_view members) {
  return input(fmt::format("[{{{}}}]", members));
}
std::string with(std::string_view members) {
  return fmt::format(R"({{"input":"Hi",{}}})", members);
}
std::string tool(std::string_view members) {
  return with(fmt::format(R"("tools":[{{"type":"function",{}}}])", members));
}

std::vector<BadRequest> items() {
  return {
      {"(body)", "a quoted request", R"("{\"input\":\"Hi\"}")", "must be a JSON object"},
      {"input", "missing", "{}", "is required"},
      {"input", "empty", input("[]"), "must not be empty"},
      {"input", "a number", input("5"), "got 5"},
      {"input", "an object", input(R"({"role":"user"})"), "got an object"},
      {"input[]", "a string", input(R"(["Hi"])"), "must be an object"},
      {"input[].type", "a number", item(R"("type":5)"), "must be a string"},
      {"input[].type", "an unknown word", item(R"("type":"telepathy")"), "telepathy"},
      {"input[].role", "missing", item(R"("content":"Hi")"), "is required"},
      {"input[].role", "an unknown word", item(R"("role":"robot","content":"Hi")"), "robot"},
      {"input[].content", "a number", item(R"("role":"user","content":5)"), "got 5"},
      {"input[].content[]", "a string", item(R"("role":"user","content":["Hi"])"), "must be an object"},
      {"input[].content[]", "an image",
       item(R"("role":"user","content":[{"type":"input_image","image_url":"x"}])"),
       "media input is not available"},
      {"input[].content[].type", "missing", item(R"("role":"user","content":[{"text":"Hi"}])"),
       "is required"},
      {"input[].content[].type", "an unknown word", item(R"("role":"user","content":[{"type":"smell"}])"),
       "smell"},
      {"input[].content[].text", "missing", item(R"("role":"user","content":[{"type":"input_text"}])"),
       "is required"},
      {"input[].content[].text", "null",
       item(R"("role":"user","content":[{"type":"input_text","text":null}])"), "is required"},
      {"input[].content", "reasoning as a string", item(R"("type":"reasoning","content":"t")"),
       "must be a list"},
      {"input[].summary", "a string", item(R"("type":"reasoning","summary":"t")"), "must be a list"},
      {"input[].summary[].text", "missing", item(R"("type":"reasoning","summary":[{}])"), "is required"},
      {"input[].call_id", "missing in a call", item(R"("type":"function_call","name":"f","arguments":"{}")"),
       "is required"},
      {"input[].call_id", "missing in an output", item(R"("type":"function_call_output","output":"r")"),
       "is required"},
      {"input[].name", "missing in a call", item(R"("type":"function_call","call_id":"c","arguments":"{}")"),
       "is required"},
      {"input[].output", "a number", item(R"("type":"function_call_output","call_id":"c","output":5)"),
       "got 5"},
  };
}

std::vector<BadRequest> members() {
  return {
      {"instructions", "a number", with(R"("instructions":5)"), "must be a string"},
      {"max_output_tokens", "0", with(R"("max_output_tokens":0)"), "at least 1"},
      {"max_output_tokens", "a string", with(R"("max_output_tokens":"5")"), "integer"},
      {"previous_response_id", "a number", with(R"("previous_response_id":5)"), "must be a string"},
      {"previous_response_id", "unknown", with(R"("previous_response_id":"resp_nobody")"), "resp_nobody",
       404},
      {"background", "true", with(R"("background":true)"), "must be false"},
      {"background", "a string", with(R"("background":"no")"), "true or false"},
      {"conversation", "a name", with(R"("conversation":"c")"), "not supported"},
      {"prompt", "an object", with(R"("prompt":{"id":"p"})"), "not supported"},
      {"top_logprobs", "above 0", with(R"("top_logprobs":5)"), "must be 0"},
      {"truncation", "an unknown word", with(R"("truncation":"middle")"), "middle"},
      {"truncation", "a number", with(R"("truncation":1)"), "must be a string"},
      {"store", "a string", with(R"("store":"yes")"), "true or false"},
      {"metadata", "a string", with(R"("metadata":"m")"), "must be an object"},
      {"metadata", "17 members",
       with(
           R"("metadata":{"a":"","b":"","c":"","d":"","e":"","f":"","g":"","h":"","i":"","j":"","k":"","l":"","m":"","n":"","o":"","p":"","q":""})"),
       "at most 16"},
      {"metadata.a", "a number", with(R"("metadata":{"a":1})"), "must be a string"},
      {"reasoning", "a word", with(R"("reasoning":"low")"), "must be an object"},
      {"reasoning.effort", "an unknown level", with(R"("reasoning":{"effort":"heroic"})"), "heroic"},
      {"text", "a string", with(R"("text":"json")"), "must be an object"},
      {"text.format", "a string", with(R"("text":{"format":"json"})"), "must be an object"},
      {"text.format.type", "missing", with(R"("text":{"format":{}})"), "is required"},
      {"text.format.type", "an unknown word", with(R"("text":{"format":{"type":"xml"}})"), "xml"},
      {"temperature", "above 2 by a little", with(R"("temperature":2.0001)"), "at most 2"},
      {"stream", "an object", with(R"("stream":{})"), "true or false"},
      {"model", "a number with a point", with(R"("model":1.5)"), "must be a string"},
      {"model", "another vendor's", with(R"("model":"gpt-9")"), "gpt-9", 404},
      {"parallel_tool_calls", "a number", with(R"("parallel_tool_calls":1)"), "true or false"},
      {"tools[]", "a word", with(R"("tools":["f"])"), "must be an object"},
      {"tools[].name", "missing", tool(R"("parameters":{})"), "must be a string"},
      {"tools[].name", "white space around it", tool(R"("name":"f ")"), "white space"},
      {"tools[].parameters", "a list", tool(R"("name":"f","parameters":[])"), "JSON Schema"},
      {"tool_choice", "without tools", with(R"("tool_choice":"required")"), "together with tools"},
  };
}

}  // namespace

BadTable bad_responses() {
  BadTable table{"responses", "/v1/responses", items()};
  for (BadRequest& row : members()) table.rows.push_back(std::move(row));
  return table;
}

}  // namespace godwit::server::testing
