// Which calls an answer may or must have, in whatever dialect it was said.
#pragma once

#include <string>
#include <vector>

#include "chat/parser.h"
#include "server/fields.h"

namespace godwit::server {

struct ToolRules {
  chat::ToolChoice choice = chat::ToolChoice::automatic;
  std::vector<std::string> names;     // functions that may be called; empty: all declared
  bool parallel = true;               // false: one call
  std::string field = "tool_choice";  // where it was said, for messages
};

// OpenAI's chat form (api spec §4.5): tool_choice none | auto | required | {type: function, …} |
// {type: allowed_tools, …}, or the older function_call; parallel_tool_calls. Refusals are kept in `fields`.
ToolRules read_tool_rules(Fields& fields);

// Whether the names are declared. Errors: invalid_request, naming the field.
Result<void> check_tool_rules(const ToolRules& rules, const chat::ToolSet* tools);

}  // namespace godwit::server
