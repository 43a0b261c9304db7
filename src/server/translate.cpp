#include "server/translate.h"

#include <fmt/format.h>

#include "chat/normalise.h"
#include "server/fields.h"

namespace godwit::server {

Error refusal(const std::string& path, std::string_view message) {
  return Error{ErrorCode::invalid_request, fmt::format("{} {}", path, message), path};
}

const Json* member_of(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value && !value->is_null() ? value : nullptr;
}

Result<std::string> need_string(const Json& object, std::string_view key, const std::string& path) {
  const Json* value = member_of(object, key);
  const std::string field = fmt::format("{}.{}", path, key);
  if (!value) return refusal(field, "is required");
  if (!value->is_string()) return refusal(field, "must be a string, got " + describe(*value));
  return value->as_string();
}

Result<void> need_object(const Json& value, const std::string& path) {
  if (value.is_object()) return {};
  return refusal(path, "must be an object, got " + describe(value));
}

void pass_members(const Json& from, JsonObject& to, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (const Json* value = member_of(from, key)) to.set(key, *value);
  }
}

Result<Json> chat_tool(const Json& tool, std::string_view schema_key, const std::string& path) {
  GODWIT_TRY(need_object(tool, path));
  JsonObject function;
  pass_members(tool, function, {"name", "description"});
  if (const Json* schema = member_of(tool, schema_key)) function.set("parameters", *schema);
  pass_members(tool, function, {"strict", "defer_loading"});
  Json out = Json::object({{"type", "function"}, {"function", std::move(function)}});
  const Json one = JsonArray{out};
  if (auto checked = chat::normalise_tools(&one); !checked) {
    return with_names(std::move(checked.error()),
                      {{"tools[0].function.parameters", fmt::format("{}.{}", path, schema_key)},
                       {"tools[0].function", path},
                       {"tools[0]", path}});
  }
  return out;
}

Json chat_call(std::string id, std::string name, Json arguments) {
  return Json::object(
      {{"id", std::move(id)},
       {"type", "function"},
       {"function", Json::object({{"name", std::move(name)}, {"arguments", std::move(arguments)}})}});
}

Error with_names(Error error, FieldNames names) {
  for (const auto& [ours, theirs] : names) {
    if (!error.field.starts_with(ours)) continue;
    const std::string rest = error.field.substr(ours.size());
    if (!rest.empty() && rest[0] != '.' && rest[0] != '[') continue;
    if (error.message.starts_with(error.field)) error.message.replace(0, ours.size(), theirs);
    error.field = std::string(theirs) + rest;
    break;
  }
  return error;
}

}  // namespace godwit::server
