// What the translators of other conversation protocols into the form of /v1/chat/completions share.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/result.h"

namespace godwit::server {

// invalid_request: "{path} {message}".
Error refusal(const std::string& path, std::string_view message);

// Errors: invalid_request at path.key when the member is missing or no string.
Result<std::string> need_string(const Json& object, std::string_view key, const std::string& path);
Result<void> need_object(const Json& value, const std::string& path);

// The member, null counting as missing.
const Json* member_of(const Json& object, std::string_view key);

// Copies members that are there and not null.
void pass_members(const Json& from, JsonObject& to, std::initializer_list<std::string_view> keys);

// {name, description, <schema_key>, strict, defer_loading} ▶ a function tool of the chat form.
Result<Json> chat_tool(const Json& tool, std::string_view schema_key, const std::string& path);

// A call of the chat form. Whatever stands for arguments is taken; normalise() sorts it out.
Json chat_call(std::string id, std::string name, Json arguments);

// A refusal by the chat form in the words of the translated one: the first pair whose left side is the start
// of the field (whole path segments) replaces it, in the field and at the start of the message.
using FieldNames = std::initializer_list<std::pair<std::string_view, std::string_view>>;
Error with_names(Error error, FieldNames names);

}  // namespace godwit::server
