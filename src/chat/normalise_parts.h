// The pieces of normalise.h; private to the room.
#pragma once

#include <string>

#include "chat/normalise.h"

namespace godwit::chat {

// Errors of a request field: path is also the start of the message.
template <class... Args>
Error field_error(const std::string& path, fmt::format_string<Args...> format, Args&&... args) {
  return Error{ErrorCode::invalid_request, path + " " + fmt::format(format, std::forward<Args>(args)...),
               path};
}

// A value in a message, cut to a readable length.
std::string brief(const Json& value);

// Content of a message: a string or a list of parts. `reasoning` receives the thinking parts of an assistant.
Result<Json> normalise_content(const Json* content, std::string_view role, const std::string& path,
                               Conversation& conversation, std::string& reasoning);

// An assistant's tool_calls with arguments as objects; empty when there are none.
Result<JsonArray> normalise_tool_calls(const Json& message, const std::string& path,
                                       Conversation& conversation);

}  // namespace godwit::chat
