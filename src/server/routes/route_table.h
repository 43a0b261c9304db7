// Paths ▶ handlers. One table; what is not in it is 404, a wrong method 405 (api spec §4.1).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/context.h"
#include "server/http.h"

namespace godwit::server {

using Writer = std::shared_ptr<ResponseWriter>;

enum class RouteAccess : uint8_t {
  key,    // with one of the server's API keys, if it has any
  open,   // probes, and what tells nothing about requests
  admin,  // design §12: on --admin-port if there is one, else for loopback peers
};

struct Route {
  std::string_view method;  // GET also answers HEAD
  std::string_view path;    // a trailing "/*" takes any rest that is not empty
  std::string_view name;    // in metrics and the log
  void (*handle)(ServerContext&, HttpRequest&&, const Writer&);
  RouteAccess access = RouteAccess::key;
};

const std::vector<Route>& routes();

// Finds and runs the route of `request`; answers 404, 405 and OPTIONS itself.
void dispatch(ServerContext& context, HttpRequest&& request, const Writer& writer);

// The answer to a request that may not use its route, known before its body is read. Else what was found
// out about it is in `head`.
std::optional<HttpResponse> turn_away(ServerContext& context, HttpRequest& head);

// The answer to a request that comes to no route, in the form that its client understands.
HttpResponse refuse(ServerContext& context, const Error& error, HttpRequest known);

// Runs `job` on the text workers, in the lane for bodies of that size; answers 429 when it is full.
void prepare_on_workers(ServerContext& context, std::string_view route, const HttpRequest& request,
                        const Writer& writer, size_t body_bytes, std::function<void()> job);

// Counts and sends.
void answer(ServerContext& context, std::string_view route, const Writer& writer, HttpResponse response);

}  // namespace godwit::server
