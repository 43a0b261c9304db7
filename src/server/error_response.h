// The one place where an Error becomes HTTP (api spec §4.4; the table is base/error.h).
#pragma once

#include <string>

#include "base/error.h"
#include "server/http.h"

namespace godwit::server {

// Which error object a client understands.
enum class ErrorStyle : uint8_t {
  openai,     // {"error":{"message","type","param","code"}}
  anthropic,  // {"type":"error","error":{"type","message"},"request_id"}
};

struct ErrorForm {
  ErrorStyle style = ErrorStyle::openai;
  std::string request_id;  // only Anthropic's body carries it
};

// Anthropic's for its routes, and for clients that say which version of its API they speak.
ErrorForm error_form(const HttpRequest& request);

void append_error_json(std::string& out, const Error& error, const ErrorForm& form = {});

// With Retry-After for 429 and 503, WWW-Authenticate for 401. Connections end after errors that leave the
// position in the byte stream unknown; the caller says so in `close`.
HttpResponse error_response(const Error& error, const ErrorForm& form = {});

}  // namespace godwit::server
