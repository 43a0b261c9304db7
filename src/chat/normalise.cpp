#include "chat/normalise.h"

#include "chat/normalise_parts.h"

namespace godwit::chat {
namespace {

constexpr std::string_view kRoles = "system, developer, user, assistant, tool, function";

Result<std::string> normalise_role(const Json& message, const std::string& path) {
  const Json* role = message.find("role");
  if (role == nullptr) return field_error(path + ".role", "is missing; it must be one of {}", kRoles);
  if (!role->is_string()) return field_error(path + ".role", "must be a string, not {}", brief(*role));
  const std::string& name = role->as_string();
  if (name == "developer") return std::string("system");
  if (name == "function") return std::string("tool");
  if (name == "system" || name == "user" || name == "assistant" || name == "tool") return name;
  return field_error(path + ".role", "is {}; it must be one of {}", brief(*role), kRoles);
}

// Copies optional string members that templates may read.
Result<void> copy_string(const Json& message, std::string_view key, const std::string& path,
                         JsonObject& out) {
  const Json* value = message.find(key);
  if (value == nullptr || value->is_null()) return {};
  if (!value->is_string())
    return field_error(path + "." + std::string(key), "must be a string, not {}", brief(*value));
  out.set(key, *value);
  return {};
}

Result<void> normalise_assistant(const Json& message, const std::string& path, std::string parts_reasoning,
                                 JsonObject& out, Conversation& conversation) {
  // The official name first; an explicit empty string is an explicit empty reasoning.
  for (std::string_view key : {"reasoning_content", "reasoning"}) {
    const Json* reasoning = message.find(key);
    if (reasoning == nullptr || !reasoning->is_string() || out.find("reasoning_content") != nullptr) continue;
    out.set("reasoning_content", *reasoning);
  }
  if (out.find("reasoning_content") == nullptr && !parts_reasoning.empty()) {
    out.set("reasoning_content", std::move(parts_reasoning));
  }
  GODWIT_ASSIGN(JsonArray calls, normalise_tool_calls(message, path, conversation));
  if (!calls.empty()) out.set("tool_calls", std::move(calls));
  return {};
}

Result<Json> normalise_message(const Json& message, const std::string& path, Conversation& conversation) {
  if (!message.is_object()) return field_error(path, "must be an object, not {}", brief(message));
  GODWIT_ASSIGN(std::string role, normalise_role(message, path));
  std::string reasoning;
  GODWIT_ASSIGN(Json content,
                normalise_content(message.find("content"), role, path + ".content", conversation, reasoning));
  JsonObject out;
  out.set("role", role);
  out.set("content", std::move(content));
  if (role == "assistant")
    GODWIT_TRY(normalise_assistant(message, path, std::move(reasoning), out, conversation));
  if (role == "tool") {
    for (std::string_view key : {"tool_call_id", "id", "name"})
      GODWIT_TRY(copy_string(message, key, path, out));
  }
  return Json(std::move(out));
}

}  // namespace

std::string brief(const Json& value) {
  constexpr size_t kShown = 80;
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  std::string text = dump_json(value, {.ensure_ascii = true});
  return text.size() <= kShown ? text : text.substr(0, kShown) + "…";
}

Result<Conversation> normalise(const Json& messages, const Json* tools) {
  if (!messages.is_array())
    return field_error("messages", "must be a list of messages, not {}", brief(messages));
  if (messages.as_array().empty()) return field_error("messages", "is empty; at least one message is needed");
  Conversation out;
  GODWIT_ASSIGN(out.tools, normalise_tools(tools));
  out.messages.reserve(messages.as_array().size());
  for (size_t i = 0; i < messages.as_array().size(); ++i) {
    GODWIT_ASSIGN(Json message,
                  normalise_message(messages.as_array()[i], fmt::format("messages[{}]", i), out));
    out.messages.push_back(std::move(message));
  }
  return out;
}

}  // namespace godwit::chat
