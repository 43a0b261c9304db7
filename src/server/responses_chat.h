// A body of /v1/responses in the form of /v1/chat/completions (api spec §4.10).
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"

namespace godwit::server {

struct ResponsesChat {
  Json chat;        // the request in the chat form
  JsonArray turns;  // messages of this request alone, without instructions and history
};

// `history`: messages of the previous response's conversation, put between instructions and input.
// Errors: invalid_request with the path in the client's own body.
Result<ResponsesChat> chat_of_responses(const Json& body, JsonArray history);

// A refusal of the chat form in this protocol's field names.
Error responses_error(Error error);

// responses_items.cpp. A string or items. Consecutive reasoning, message and function_call items of the
// assistant become one message.
Result<JsonArray> read_input(const Json& input);

}  // namespace godwit::server
