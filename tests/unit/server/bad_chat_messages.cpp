// messages, tools and functions of the chat route.
#include <fmt/format.h>

#include "bad_requests.h"

namespace godwit::server::testing {
namespace {

std::string messages(std::string_view value) {
  return fmt::format(R"({{"messages":{}}})", value);
}
// One message with these members.
std::string message(std::string_view members) {
  return messages(fmt::format("[{{{}}}]", members));
}
// One message of that role with one part of these members.
std::string part(std::string_view role, std::string_view members) {
  return message(fmt::format(R"("role":"{}","content":[{{{}}}])", role, members));
}
std::string assistant(std::string_view members) {
  return message(R"("role":"assistant",)" + std::string(members));
}
std::string with(std::string_view members) {
  return fmt::format(R"({{"messages":[{{"role":"user","content":"Hi"}}],{}}})", members);
}
std::string function(std::string_view members) {
  return with(fmt::format(R"("tools":[{{"type":"function","function":{{{}}}}}])", members));
}

std::string many(std::string_view item, size_t count) {
  std::string out = "[";
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) out += ",";
    out += item;
  }
  return out + "]";
}

std::vector<BadRequest> rows() {
  return {
      {"messages", "missing", "{}", "messages is required"},
      {"messages", "null", messages("null"), "messages is required"},
      {"messages", "empty", messages("[]"), "must not be empty"},
      {"messages", "a string", messages(R"("Hi")"), "must be an array, got \"Hi\""},
      {"messages", "an object", messages(R"({"role":"user"})"), "must be an array, got an object"},
      {"messages", "100,001 items", messages(many("1", 100'001)), "at most 100000"},
      {"messages[]", "a number", messages("[1]"), "must be an object, not 1"},
      {"messages[]", "null", messages("[null]"), "must be an object, not null"},
      {"messages[]", "a string", messages(R"(["Hi"])"), "must be an object, not \"Hi\""},
      {"messages[].role", "missing", message(R"("content":"Hi")"), "is missing; it must be one of"},
      {"messages[].role", "a number", message(R"("role":7,"content":"Hi")"), "must be a string, not 7"},
      {"messages[].role", "an unknown word", message(R"("role":"robot","content":"Hi")"), "\"robot\""},
      {"messages[].role", "in capitals", message(R"("role":"USER","content":"Hi")"), "\"USER\""},
      {"messages[].role", "empty", message(R"("role":"","content":"Hi")"), "must be one of system"},
      {"messages[].content", "a number", message(R"("role":"user","content":5)"), "not 5"},
      {"messages[].content", "an object", message(R"("role":"user","content":{"text":"Hi"})"),
       "not an object"},
      {"messages[].content", "true", message(R"("role":"system","content":true)"), "not true"},
      {"messages[].content[]", "a number", message(R"("role":"user","content":[5])"),
       "a string or an object, not 5"},
      {"messages[].content[]", "null", message(R"("role":"user","content":[null])"), "not null"},
      {"messages[].content[]", "an array", message(R"("role":"user","content":[[]])"), "not a list"},
      {"messages[].content[]", "an image",
       part("user", R"("type":"image_url","image_url":{"url":"data:image/png;base64,AA"})"),
       "is an image; media input is not available"},
      {"messages[].content[]", "a video", part("user", R"("type":"video_url","video_url":{"url":"x"})"),
       "is a video"},
      {"messages[].content[]", "audio", part("user", R"("type":"input_audio","input_audio":{"data":"AA"})"),
       "is audio"},
      {"messages[].content[].type", "missing", part("user", R"("text":"Hi")"), "is missing"},
      {"messages[].content[].type", "a number", part("user", R"("type":1,"text":"Hi")"),
       "must be a string, not 1"},
      {"messages[].content[].type", "an unknown word", part("user", R"("type":"hologram")"), "\"hologram\""},
      {"messages[].content[].type", "thinking of a user", part("user", R"("type":"thinking","thinking":"x")"),
       "role user cannot"},
      {"messages[].content[].type", "a tool reference of a user",
       part("user", R"("type":"tool_reference","name":"f")"), "tool_reference"},
      {"messages[].content[].text", "missing", part("user", R"("type":"text")"), "is missing"},
      {"messages[].content[].text", "a number", part("user", R"("type":"text","text":5)"),
       "must be a string, not 5"},
      {"messages[].content[].text", "an array", part("system", R"("type":"input_text","text":["Hi"])"),
       "not a list"},
      {"messages[].content[].refusal", "missing", part("assistant", R"("type":"refusal")"), "is missing"},
      {"messages[].content[].thinking", "missing", part("assistant", R"("type":"thinking")"), "is missing"},
      {"messages[].content[].thinking", "a number", part("assistant", R"("type":"thinking","thinking":1)"),
       "must be a string, not 1"},
      {"messages[].content[].reasoning", "missing", part("assistant", R"("type":"reasoning")"), "is missing"},
      {"messages[].content[].name", "missing", part("tool", R"("type":"tool_reference")"), "is missing"},
      {"messages[].content[].output", "an output inside an output",
       part("tool", R"("output":[{"output":"x"}],"tool_call_id":"c")"), "must not contain further outputs"},
      {"messages[].content[].output[].type", "missing", part("tool", R"("output":[{"text":"x"}])"),
       "is missing"},
      {"messages[].tool_calls", "an object", assistant(R"("tool_calls":{"f":1})"),
       "must be a list, not an object"},
      {"messages[].tool_calls", "a string", assistant(R"("tool_calls":"f")"), "must be a list"},
      {"messages[].tool_calls[]", "a number", assistant(R"("tool_calls":[1])"), "must be an object, not 1"},
      {"messages[].tool_calls[].name", "missing", assistant(R"("tool_calls":[{}])"), "must be a string"},
      {"messages[].tool_calls[].function.name", "missing", assistant(R"("tool_calls":[{"function":{}}])"),
       "must be a string"},
      {"messages[].tool_calls[].function.name", "a number",
       assistant(R"("tool_calls":[{"function":{"name":1}}])"), "must be a string"},
      {"messages[].function_call", "a string", assistant(R"("function_call":"f")"),
       "must be an object, not \"f\""},
      {"messages[].function_call.name", "missing", assistant(R"("function_call":{})"), "must be a string"},
      {"messages[].tool_call_id", "a number", message(R"("role":"tool","content":"x","tool_call_id":5)"),
       "must be a string, not 5"},
      {"messages[].id", "an object", message(R"("role":"tool","content":"x","id":{})"), "not an object"},
      {"messages[].name", "a number", message(R"("role":"function","content":"x","name":5)"), "not 5"},

      {"tools", "an object", with(R"("tools":{"f":1})"), "must be a list of tools, not an object"},
      {"tools", "a string", with(R"("tools":"f")"), "must be a list of tools, not \"f\""},
      {"tools[]", "a number", with(R"("tools":[1])"), "must be an object, not 1"},
      {"tools[]", "null", with(R"("tools":[null])"), "must be an object, not null"},
      {"tools[].type", "a server's own tool", with(R"("tools":[{"type":"web_search"}])"), "\"web_search\""},
      {"tools[].type", "a number", with(R"("tools":[{"type":5}])"), "is 5"},
      {"tools[].name", "missing in the flat form", with(R"("tools":[{"type":"function"}])"),
       "must be a string"},
      {"tools[].function", "a string", with(R"("tools":[{"type":"function","function":"f"}])"), "not \"f\""},
      {"tools[].function.name", "missing", function(R"("description":"x")"), "must be a string"},
      {"tools[].function.name", "a number", function(R"("name":5)"), "must be a string"},
      {"tools[].function.name", "empty", function(R"("name":"")"), "has 0 bytes; it must have 1 to 256"},
      {"tools[].function.name", "257 bytes", function(fmt::format(R"("name":"{}")", std::string(257, 'f'))),
       "has 257 bytes"},
      {"tools[].function.name", "white space around it", function(R"("name":" f")"), "white space"},
      {"tools[].function.parameters", "a string", function(R"("name":"f","parameters":"{}")"), "JSON Schema"},
      {"tools[].function.parameters", "an array", function(R"("name":"f","parameters":[])"), "not a list"},
      {"functions", "an object", with(R"("functions":{"name":"f"})"), "must be an array, got an object"},
      {"functions", "10,001 items", with(R"("functions":)" + many("{}", 10'001)), "at most 10000"},
  };
}

}  // namespace

BadTable bad_chat_messages() {
  return {"chat", "/v1/chat/completions", rows()};
}

}  // namespace godwit::server::testing
