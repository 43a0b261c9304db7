// A body of /v1/messages (Anthropic) in the form of /v1/chat/completions (api spec §4.11).
#pragma once

#include "base/json.h"
#include "base/result.h"

namespace godwit::server {

// Errors: invalid_request with the path in the client's own body.
Result<Json> chat_of_messages(const Json& body);

// A refusal of the chat form in Anthropic's field names.
Error messages_error(Error error);

// messages_blocks.cpp: one message with its content blocks becomes one or more chat messages.
Result<void> read_message(const Json& message, const std::string& path, JsonArray& out);
// A string or text blocks. Blocks that start with x-anthropic-billing-header are dropped: their per-request
// hash would defeat the prefix cache.
Result<Json> read_system(const Json& system, const std::string& path);

}  // namespace godwit::server
