// The one place where an Error becomes HTTP (api spec §4.4; the table is base/error.h).
#pragma once

#include <string>

#include "base/error.h"
#include "server/http.h"

namespace godwit::server {

// {"error":{"message","type","param","code"}}
void append_error_json(std::string& out, const Error& error);

// With Retry-After for 429 and 503, WWW-Authenticate for 401. Connections end after errors that leave the
// position in the byte stream unknown; the caller says so in `close`.
HttpResponse error_response(const Error& error);

}  // namespace godwit::server
