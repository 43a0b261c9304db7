// /v1/messages and /v1/messages/count_tokens.
#include <fmt/format.h>

#include "bad_requests.h"

namespace godwit::server::testing {
namespace {

std::string messages(std::string_view value) {
  return fmt::format(R"({{"max_tokens":5,"messages":{}}})", value);
}
// A good request and these members.
std::string with(std::string_view members) {
  return fmt::format(R"({{"max_tokens":5,"messages":[{{"role":"user","content":"Hi"}}],{}}})", members);
}
// One message of that role with one block of these members.
std::string block(std::string_view role, std::string_view members) {
  return messages(fmt::format(R"([{{"role":"{}","content":[{{{}}}]}}])", role, members));
}
// A tool result whose content is this.
std::string result(std::string_view content) {
  return block("user", fmt::format(R"("type":"tool_result","tool_use_id":"t","content":{})", content));
}
std::string tool(std::string_view members) {
  return with(fmt::format(R"("tools":[{{{}}}])", members));
}

std::vector<BadRequest> conversation() {
  return {
      {"(body)", "a list of messages", R"([{"role":"user","content":"Hi"}])", "must be a JSON object"},
      {"(body)", "cut inside an object", R"({"max_tokens":5,)", "not valid JSON"},
      {"messages", "missing", R"({"max_tokens":5})", "messages is required"},
      {"messages", "empty", messages("[]"), "must not be empty"},
      {"messages", "a string", messages(R"("Hi")"), "must be an array"},
      {"messages[]", "a string", messages(R"(["Hi"])"), "must be an object"},
      {"messages[].role", "missing", messages(R"([{"content":"Hi"}])"), "is required"},
      {"messages[].role", "tool", messages(R"([{"role":"tool","content":"Hi"}])"),
       "must be user, assistant or system"},
      {"messages[].role", "a number", messages(R"([{"role":1,"content":"Hi"}])"), "must be a string"},
      {"messages[].content", "missing", messages(R"([{"role":"user"}])"), "is required"},
      {"messages[].content", "a number", messages(R"([{"role":"user","content":5}])"), "got 5"},
      {"messages[].content[]", "a number", messages(R"([{"role":"user","content":[5]}])"),
       "must be an object"},
      {"messages[].content[]", "an image",
       block("user", R"("type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"})"),
       "media input is not available"},
      {"messages[].content[].type", "missing", block("user", R"("text":"Hi")"), "is required"},
      {"messages[].content[].type", "an unknown word", block("user", R"("type":"hologram")"), "hologram"},
      {"messages[].content[].type", "tool_use of a user",
       block("user", R"("type":"tool_use","id":"t","name":"f")"), "tool_use"},
      {"messages[].content[].type", "tool_result of an assistant",
       block("assistant", R"("type":"tool_result","tool_use_id":"t")"), "tool_result"},
      {"messages[].content[].text", "missing", block("user", R"("type":"text")"), "is required"},
      {"messages[].content[].text", "a number", block("user", R"("type":"text","text":1)"),
       "must be a string"},
      {"messages[].content[].thinking", "missing", block("assistant", R"("type":"thinking","signature":"s")"),
       "is required"},
      {"messages[].content[].id", "missing in tool_use",
       block("assistant", R"("type":"tool_use","name":"f","input":{})"), "is required"},
      {"messages[].content[].name", "missing in tool_use",
       block("assistant", R"("type":"tool_use","id":"t","input":{})"), "is required"},
      {"messages[].content[].tool_use_id", "missing", block("user", R"("type":"tool_result","content":"r")"),
       "is required"},
      {"messages[].content[].content", "a number", result("5"), "got 5"},
      {"messages[].content[].content[]", "an image", result(R"([{"type":"image","source":{}}])"),
       "is an image"},
      {"messages[].content[].content[].type", "an unknown word", result(R"([{"type":"video"}])"), "video"},
      {"messages[].content[].content[].text", "missing", result(R"([{"type":"text"}])"), "is required"},
      {"messages[].content[].source", "missing", block("user", R"("type":"document")"), "is required"},
      {"messages[].content[].source.type", "a PDF",
       block("user", R"("type":"document","source":{"type":"base64"})"), "plain text"},
      {"messages[].content[].source.data", "missing",
       block("user", R"("type":"document","source":{"type":"text"})"), "is required"},
      {"system", "a number", with(R"("system":5)"), "got 5"},
      {"system[]", "a string", with(R"("system":["s"])"), "must be an object"},
      {"system[].type", "an image", with(R"("system":[{"type":"image"}])"), "image"},
      {"system[].text", "missing", with(R"("system":[{"type":"text"}])"), "is required"},
  };
}

std::vector<BadRequest> members() {
  return {
      {"max_tokens", "0", R"({"max_tokens":0,"messages":[{"role":"user","content":"Hi"}]})", "at least 1"},
      {"max_tokens", "a string", R"({"max_tokens":"5","messages":[{"role":"user","content":"Hi"}]})",
       "integer"},
      {"temperature", "a word", with(R"("temperature":"warm")"), "must be a number"},
      {"top_k", "an array", with(R"("top_k":[5])"), "must be an integer"},
      {"stop_sequences", "a number", with(R"("stop_sequences":5)"), "must be"},
      {"stop_sequences[]", "a number", with(R"("stop_sequences":["a",5])"), "must be a string"},
      {"stream", "a word", with(R"("stream":"sse")"), "true or false"},
      {"(model)", "not served", with(R"("model":"claude-nobody")"), "claude-nobody", 404},
      {"thinking", "a string", with(R"("thinking":"enabled")"), "must be an object"},
      {"thinking.type", "missing", with(R"("thinking":{"budget_tokens":5})"), "is required"},
      {"thinking.budget_tokens", "negative", with(R"("thinking":{"type":"enabled","budget_tokens":-1})"),
       "at least 0"},
      {"thinking.budget_tokens", "a string", with(R"("thinking":{"type":"enabled","budget_tokens":"all"})"),
       "integer"},
      {"output_config", "a string", with(R"("output_config":"low")"), "must be an object"},
      {"output_config.effort", "an unknown level", with(R"("output_config":{"effort":"heroic"})"), "heroic"},
      {"output_config.format", "a string", with(R"("output_config":{"format":"json"})"), "must be an object"},
      {"output_config.format.type", "missing", with(R"("output_config":{"format":{}})"), "is required"},
      {"tools", "an object", with(R"("tools":{})"), "must be an array"},
      {"tools[]", "a number", with(R"("tools":[5])"), "must be an object"},
      {"tools[].input_schema", "missing", tool(R"("name":"f")"), "is required"},
      {"tools[].input_schema", "a string", tool(R"("name":"f","input_schema":"{}")"), "JSON Schema"},
      {"tools[].name", "missing", tool(R"("input_schema":{})"), "must be a string"},
      {"tools[].name", "empty", tool(R"("name":"","input_schema":{})"), "must have 1 to 256"},
      {"tool_choice", "a string", with(R"("tool_choice":"any")"), "must be an object"},
      {"tool_choice", "without tools", with(R"("tool_choice":{"type":"any"})"), "together with tools"},
      {"tool_choice.type", "missing", with(R"("tool_choice":{})"), "is required"},
      {"tool_choice.type", "an unknown word", with(R"("tool_choice":{"type":"some"})"), "some"},
      {"tool_choice.name", "missing", with(R"("tool_choice":{"type":"tool"})"), "is required"},
      {"tool_choice.disable_parallel_tool_use", "a string",
       with(R"("tool_choice":{"type":"auto","disable_parallel_tool_use":"yes"})"), "true or false"},
  };
}

}  // namespace

BadTable bad_messages() {
  BadTable table{"messages", "/v1/messages", conversation(), ErrorShape::anthropic};
  for (BadRequest& row : members()) table.rows.push_back(std::move(row));
  return table;
}

BadTable bad_count_tokens() {
  return {"count_tokens",
          "/v1/messages/count_tokens",
          {
              {"(body)", "a word", "count", "not valid JSON"},
              {"messages", "an object", R"({"messages":{}})", "must be an array"},
              {"messages[].content", "true", R"({"messages":[{"role":"user","content":true}]})", "got true"},
              {"system", "an object", R"({"messages":[{"role":"user","content":"Hi"}],"system":{}})",
               "an object"},
              {"tools", "a word", R"({"messages":[{"role":"user","content":"Hi"}],"tools":"f"})",
               "must be an array"},
          },
          ErrorShape::anthropic};
}

}  // namespace godwit::server::testing
