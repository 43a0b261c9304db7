// Who may use a route, and what browsers are told (api spec §4.2).
#pragma once

#include "base/result.h"
#include "server/context.h"
#include "server/http.h"

namespace godwit::server {

// Checks the API key (Authorization: Bearer KEY or x-api-key: KEY) and its limits, names it in the request
// and occupies its share until the answer has ended. Anything goes when the server has no keys. Errors:
// unauthorized, overloaded, too_large.
Result<void> authorise(ServerContext& context, HttpRequest& request, ResponseWriter& writer);

// The same before the body is read: whether the key is known and may send so much. Occupies nothing, and
// leaves the key in the request for authorise(). Errors: unauthorized, too_large.
Result<void> may_send_body(ServerContext& context, HttpRequest& head);

// Headers for a browser page of another origin that may use this server; none otherwise.
Headers cors_headers(const std::vector<std::string>& origins, const HttpRequest& request);
// In addition, for the OPTIONS request that asks first.
Headers preflight_headers(const HttpRequest& request);

}  // namespace godwit::server
