// Request messages and tools to what chat templates expect (api spec §2.10): every dialect clients send
// becomes one form, and what no template could render is refused with the path of the field.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace godwit::chat {

struct MediaPart {
  enum class Kind : uint8_t { image, video, audio };
  Kind kind = Kind::image;
  std::string path;  // "messages[1].content[0]"
};

struct Conversation {
  JsonArray messages;                 // role, content, reasoning_content, tool_calls, tool_call_id, id, name
  JsonArray tools;                    // empty = none
  std::vector<MediaPart> media;       // in the order of the render
  std::vector<std::string> warnings;  // what was changed in a way the client may not expect
};

// messages: the request's list. Errors: invalid_request with the field's path.
Result<Conversation> normalise(const Json& messages, const Json* tools);

// tools may be null, missing or empty: then the result is empty. Entries are {type: "function", function:
// {...}} or bare functions.
Result<JsonArray> normalise_tools(const Json* tools);

}  // namespace godwit::chat
