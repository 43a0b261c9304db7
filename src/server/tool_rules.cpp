#include "server/tool_rules.h"

namespace godwit::server {
namespace {

using chat::ToolChoice;

constexpr size_t kMaxAllowed = 512;

// {type: function, function: {name}} and the flat forms {type: function, name} and {name}.
const std::string* name_of(const Json& choice) {
  const Json* function = choice.find("function");
  const Json* name = (function != nullptr ? *function : choice).find("name");
  return name != nullptr && name->is_string() ? &name->as_string() : nullptr;
}

// {type: allowed_tools, allowed_tools: {mode, tools}}, or mode and tools beside type.
void read_allowed(Fields& fields, const Json& choice, ToolRules& out) {
  const Json* nested = choice.find("allowed_tools");
  const bool flat = nested == nullptr || !nested->is_object();
  Fields inner(flat ? choice : *nested, flat ? out.field : out.field + ".allowed_tools");
  const std::string* mode = inner.string("mode");
  if (mode && *mode != "auto" && *mode != "required")
    inner.refuse("mode", "must be \"auto\" or \"required\", got " + describe(Json(*mode)));
  if (mode && *mode == "required") out.choice = ToolChoice::required;
  const JsonArray* tools = inner.array("tools", kMaxAllowed);
  if (!tools && !inner.error()) inner.refuse("tools", "is required");
  if (tools && tools->empty()) inner.refuse("tools", "must not be empty; tool_choice \"none\" forbids calls");
  for (size_t i = 0; tools && i < tools->size(); ++i) {
    const std::string* name = name_of((*tools)[i]);
    if (!name) inner.refuse(fmt::format("tools[{}]", i), "must name a function");
    if (name) out.names.push_back(*name);
  }
  if (inner.error()) fields.keep(*inner.error());
}

}  // namespace

ToolRules read_tool_rules(Fields& fields) {
  ToolRules out;
  out.parallel = fields.boolean("parallel_tool_calls").value_or(true);
  if (!fields.has("tool_choice")) out.field = "function_call";
  const Json* choice = fields.any(out.field);
  if (!choice) return out;
  const Json* tools = fields.any(fields.has("tools") ? "tools" : "functions");
  const bool declared = tools && tools->is_array() && !tools->as_array().empty();
  const std::string word = choice->is_string() ? choice->as_string() : "";
  if (word == "none") {
    out.choice = ToolChoice::none;
  } else if (!declared) {
    fields.refuse(out.field, "is only allowed together with tools");
  } else if (word == "required") {
    out.choice = ToolChoice::required;
  } else if (const Json* type = choice->find("type"); type && *type == Json("allowed_tools")) {
    read_allowed(fields, *choice, out);
  } else if (choice->is_object()) {
    const std::string* name = name_of(*choice);
    if (!name)
      fields.refuse(out.field, "must name a function: {\"type\": \"function\", \"function\": {\"name\": …}}");
    if (name) out.names = {*name};
    out.choice = ToolChoice::named;
  } else if (word != "auto") {
    fields.refuse(out.field,
                  "must be \"auto\", \"none\", \"required\" or an object, got " + describe(*choice));
  }
  return out;
}

Result<void> check_tool_rules(const ToolRules& rules, const chat::ToolSet* tools) {
  for (const std::string& name : rules.names) {
    if (tools != nullptr && tools->find(name) != nullptr) continue;
    return make_error(ErrorCode::invalid_request, rules.field,
                      "{} names the function {}, which is not in tools", rules.field, describe(Json(name)));
  }
  return {};
}

}  // namespace godwit::server
