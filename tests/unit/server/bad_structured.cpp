// What asks for an answer of a given form: response_format, grammars, tool_choice, budgets, continued
// messages.
#include <fmt/format.h>

#include "bad_requests.h"

namespace godwit::server::testing {
namespace {

// A good chat request and these members.
std::string with(std::string_view members) {
  return fmt::format(R"({{"messages":[{{"role":"user","content":"Hi"}}],{}}})", members);
}
// The same, with a tool f.
std::string with_tool(std::string_view members) {
  return with(R"("tools":[{"type":"function","function":{"name":"f"}}],)" + std::string(members));
}
std::string schema(std::string_view value) {
  return with(
      fmt::format(R"("response_format":{{"type":"json_schema","json_schema":{{"schema":{}}}}})", value));
}
std::string ending(std::string_view message, std::string_view members) {
  return fmt::format(R"({{"messages":[{}],{}}})", message, members);
}

std::vector<BadRequest> formats() {
  return {
      {"response_format", "a string", with(R"("response_format":"text")"), "must be an object"},
      {"response_format.type", "missing", with(R"("response_format":{})"), "required"},
      {"response_format.type", "an unknown word", with(R"("response_format":{"type":"xml"})"), "xml"},
      {"response_format.type", "a number", with(R"("response_format":{"type":5})"), "must be a string"},
      {"response_format.json_schema.schema", "missing",
       with(R"("response_format":{"type":"json_schema","json_schema":{}})"), "is required"},
      {"response_format.json_schema.schema", "a list", schema("[1]"), "JSON Schema object"},
      {"response_format.json_schema.schema", "a keyword that is not supported",
       schema(R"({"type":"object","properties":{"a":{"not":{}}}})"), "#/properties/a"},
      {"response_format.schema", "a keyword that is not supported",
       with(R"("response_format":{"type":"json_schema","schema":{"multipleOf":2}})"), "multipleOf"},
      {"guided_json", "a number", with(R"("guided_json":7)"), "JSON Schema object"},
      {"guided_json", "broken JSON text", with(R"("guided_json":"{oops")"), "not the JSON text"},
      {"guided_json", "a keyword that is not supported", with(R"("guided_json":{"if":{}})"), "if"},
      {"guided_regex", "a number", with(R"("guided_regex":7)"), "must be a string"},
      {"guided_regex", "a look-ahead", with(R"("guided_regex":"(?=a)b")"), "guided_regex"},
      {"guided_regex", "beside response_format",
       with(R"("guided_regex":"a","response_format":{"type":"json_object"})"), "send one of them"},
      {"guided_choice", "an empty list", with(R"("guided_choice":[])"), "must not be empty"},
      {"guided_choice[]", "a number", with(R"("guided_choice":["a",2])"), "must be a string"},
      {"guided_grammar", "a grammar", with(R"("guided_grammar":"root ::= x")"), "not supported"},
      {"structured_outputs.grammar", "a grammar", with(R"("structured_outputs":{"grammar":"root ::= x"})"),
       "not supported"},
      {"structured_outputs.choice", "beside a regex",
       with(R"("structured_outputs":{"regex":"a","choice":["a"]})"), "send one of them"},
  };
}

std::vector<BadRequest> choices() {
  return {
      {"tool_choice", "without tools", with(R"("tool_choice":"auto")"), "together with tools"},
      {"tool_choice", "an unknown word", with_tool(R"("tool_choice":"maybe")"), "maybe"},
      {"tool_choice", "an unknown function",
       with_tool(R"("tool_choice":{"type":"function","function":{"name":"g"}})"), "not in tools"},
      {"tool_choice", "an object without a name",
       with_tool(R"("tool_choice":{"type":"function","function":{}})"), "must name a function"},
      {"tool_choice.allowed_tools.mode", "an unknown word",
       with_tool(
           R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"often","tools":[{"name":"f"}]}})"),
       "often"},
      {"tool_choice.tools", "missing", with_tool(R"("tool_choice":{"type":"allowed_tools","mode":"auto"})"),
       "is required"},
      {"tools[].function.parameters", "a keyword that is not supported, required",
       with(
           R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"contains":1}}}}}],"tool_choice":"required")"),
       "contains"},
      {"function_call", "without functions", with(R"("function_call":"auto")"), "together with tools"},
  };
}

std::vector<BadRequest> endings() {
  return {
      {"continue_final_message", "after a user's message", with(R"("continue_final_message":true)"),
       "role assistant"},
      {"continue_final_message", "a string", with(R"("continue_final_message":"yes")"), "true or false"},
      {"continue_final_message", "together with add_generation_prompt",
       ending(R"({"role":"assistant","content":"A"})",
              R"("continue_final_message":true,"add_generation_prompt":true)"),
       "exclude each other"},
      {"messages[].tool_calls", "to be continued",
       ending(R"({"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{}}}]})",
              R"("continue_final_message":true)"),
       "cannot be continued"},
      {"add_generation_prompt", "a number", with(R"("add_generation_prompt":0)"), "true or false"},
      {"thinking_token_budget", "below -1", with(R"("thinking_token_budget":-2)"), "from -1"},
      {"max_reasoning_tokens", "a string", with(R"("max_reasoning_tokens":"many")"), "integer"},
      {"reasoning_budget", "beside another budget", with(R"("thinking_token_budget":5,"reasoning_budget":6)"),
       "send one of them"},
  };
}

}  // namespace

BadTable bad_structured() {
  BadTable table{"chat", "/v1/chat/completions", formats()};
  for (auto* more : {choices, endings})
    for (BadRequest& row : more()) table.rows.push_back(std::move(row));
  return table;
}

}  // namespace godwit::server::testing
