// Declared tools, and the calls of earlier turns.
#include "chat/item.h"
#include "chat/normalise_parts.h"
#include "chat/tools.h"

namespace godwit::chat {
namespace {

// Templates iterate over the arguments, so they must be an object whatever the client echoed back (C16 to
// C18).
Json normalise_arguments(const Json* arguments, const std::string& path, Conversation& conversation) {
  if (arguments == nullptr || arguments->is_null()) return JsonObject();
  if (arguments->is_object()) return *arguments;
  if (arguments->is_string()) {
    if (trim_blank(arguments->as_string()).empty()) return JsonObject();
    auto parsed = parse_json(arguments->as_string());
    if (parsed.ok() && parsed->is_object()) return std::move(parsed).value();
    if (parsed.ok() && parsed->is_null()) return JsonObject();
  }
  conversation.warnings.push_back(path + " is no JSON object; it was kept as one raw argument");
  return Json::object({{"arguments", *arguments}});
}

Result<Json> normalise_call(const Json& call, const std::string& path, Conversation& conversation) {
  if (!call.is_object()) return field_error(path, "must be an object, not {}", brief(call));
  const Json* function = call.find("function");
  std::string function_path = path + ".function";
  if (function == nullptr) {  // a bare {name, arguments}
    function = &call;
    function_path = path;
  }
  const Json* name = function->find("name");
  if (name == nullptr || !name->is_string()) return field_error(function_path + ".name", "must be a string");
  JsonObject out;
  if (const Json* id = call.find("id"); id != nullptr && id->is_string()) out.set("id", *id);
  out.set("type", "function");
  out.set("function",
          Json::object({{"name", *name},
                        {"arguments", normalise_arguments(function->find("arguments"),
                                                          function_path + ".arguments", conversation)}}));
  return Json(std::move(out));
}

Result<Json> normalise_tool(const Json& tool, const std::string& path) {
  if (!tool.is_object()) return field_error(path, "must be an object, not {}", brief(tool));
  const Json* type = tool.find("type");
  if (type != nullptr && !(*type == Json("function"))) {
    return field_error(path + ".type", "is {}; only \"function\" tools are supported", brief(*type));
  }
  const Json* function = tool.find("function");
  bool bare = function == nullptr;
  std::string function_path = bare ? path : path + ".function";
  if (bare) function = &tool;
  if (!function->is_object())
    return field_error(function_path, "must be an object, not {}", brief(*function));

  JsonObject out = function->as_object();
  if (bare) out.erase("type");
  const Json* name = out.find("name");
  if (name == nullptr || !name->is_string()) return field_error(function_path + ".name", "must be a string");
  if (name->as_string().empty() || name->as_string().size() > ToolSet::kMaxName) {
    return field_error(function_path + ".name", "has {} bytes; it must have 1 to {}",
                       name->as_string().size(), ToolSet::kMaxName);
  }
  if (trim_blank(name->as_string()) != name->as_string()) {
    return field_error(function_path + ".name", "must not begin or end with white space");
  }
  if (const Json* parameters = out.find("parameters"); parameters != nullptr && parameters->is_null()) {
    out.erase("parameters");
  } else if (parameters != nullptr && !parameters->is_object()) {
    return field_error(function_path + ".parameters", "must be an object (a JSON Schema), not {}",
                       brief(*parameters));
  }
  if (const Json* deferred = tool.find("defer_loading"); !bare && deferred != nullptr) {
    out.set("defer_loading", *deferred);
  }
  return Json::object({{"type", "function"}, {"function", std::move(out)}});
}

}  // namespace

Result<JsonArray> normalise_tool_calls(const Json& message, const std::string& path,
                                       Conversation& conversation) {
  JsonArray out;
  const Json* calls = message.find("tool_calls");
  if (calls == nullptr || calls->is_null()) {
    // The single call of the API before tools.
    const Json* call = message.find("function_call");
    if (call == nullptr || call->is_null()) return out;
    GODWIT_ASSIGN(Json one, normalise_call(*call, path + ".function_call", conversation));
    out.push_back(std::move(one));
    return out;
  }
  if (!calls->is_array()) return field_error(path + ".tool_calls", "must be a list, not {}", brief(*calls));
  for (size_t i = 0; i < calls->as_array().size(); ++i) {
    std::string call_path = fmt::format("{}.tool_calls[{}]", path, i);
    GODWIT_ASSIGN(Json call, normalise_call(calls->as_array()[i], call_path, conversation));
    out.push_back(std::move(call));
  }
  return out;
}

Result<JsonArray> normalise_tools(const Json* tools) {
  JsonArray out;
  if (tools == nullptr || tools->is_null()) return out;
  if (!tools->is_array()) return field_error("tools", "must be a list of tools, not {}", brief(*tools));
  for (size_t i = 0; i < tools->as_array().size(); ++i) {
    GODWIT_ASSIGN(Json tool, normalise_tool(tools->as_array()[i], fmt::format("tools[{}]", i)));
    out.push_back(std::move(tool));
  }
  return out;
}

}  // namespace godwit::chat
