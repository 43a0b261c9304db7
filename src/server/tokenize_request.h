// The bodies of /tokenize and /detokenize (api spec §4.8).
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "server/http.h"
#include "server/serving_model.h"

namespace godwit::server {

// {prompt} or {content}, or {messages, tools, …} through the chat template ▶ {count, max_model_len, tokens}.
// Errors: invalid_request with the field.
Result<Json> tokenize_text(const ServingModel& model, const HttpRequest& request);

// {tokens} ▶ {prompt, content}, the same text under both names. Errors: invalid_request with the field.
Result<Json> detokenize_ids(const ServingModel& model, const HttpRequest& request);

}  // namespace godwit::server
