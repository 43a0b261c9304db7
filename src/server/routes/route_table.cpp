#include "server/routes/route_table.h"

#include <algorithm>
#include <array>

#include "server/access.h"
#include "server/error_response.h"
#include "server/routes/handlers.h"

namespace godwit::server {
namespace {

bool matches(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with("/*")) return pattern == path;
  const std::string_view head = pattern.substr(0, pattern.size() - 1);
  return path.size() > head.size() && path.starts_with(head);
}

// Clients whose base URL lacks the "/v1" (api spec §4.1).
std::string with_version(std::string path) {
  static constexpr std::array<std::string_view, 9> kUnversioned = {
      "/models",    "/models/*",    "/chat/completions", "/completions",          "/embeddings",
      "/responses", "/responses/*", "/messages",         "/messages/count_tokens"};
  const bool alias = std::any_of(kUnversioned.begin(), kUnversioned.end(),
                                 [&](std::string_view pattern) { return matches(pattern, path); });
  return alias ? "/v1" + path : path;
}

// As much of what a client wrote as a message needs.
std::string clipped(std::string_view text) {
  constexpr size_t kShown = 128;
  return text.size() <= kShown ? std::string(text) : std::string(text.substr(0, kShown)) + "…";
}

void not_found(ServerContext& context, const HttpRequest& request, const Writer& writer) {
  answer(context, "unknown", writer,
         error_response(make_error(ErrorCode::not_found, "", "there is nothing at {} {}",
                                   clipped(request.method), clipped(request.path)),
                        error_form(request)));
}

// Who may use an admin route. A page of some other site that a browser on this machine shows could post to
// the loopback, too; it cannot hide where it comes from.
Result<void> may_administer(const ServerContext& context, const HttpRequest& request) {
  if (request.admin_port) return {};
  if (context.has_admin_port)
    return make_error(ErrorCode::forbidden, "", "{} is served on --admin-port only", clipped(request.path));
  if (!request.from_loopback)
    return make_error(ErrorCode::forbidden, "",
                      "{} is for this machine only, and {} is not it; start the server with --admin-port to "
                      "administer it from elsewhere",
                      clipped(request.path), request.peer);
  if (!request.header("origin").empty())
    return make_error(ErrorCode::forbidden, "", "{} is not for web pages", clipped(request.path));
  return {};
}

Result<void> may_use(ServerContext& context, const Route& route, HttpRequest& request,
                     ResponseWriter& writer) {
  switch (route.access) {
    case RouteAccess::key:
      return authorise(context, request, writer);
    case RouteAccess::admin:
      return may_administer(context, request);
    case RouteAccess::open:
      break;
  }
  return {};
}

}  // namespace

const std::vector<Route>& routes() {
  static const std::vector<Route> table = {
      {"POST", "/v1/chat/completions", "chat", post_chat_completions},
      {"POST", "/v1/completions", "completions", post_completions},
      {"POST", "/v1/messages", "messages", post_messages},
      {"POST", "/v1/messages/count_tokens", "count_tokens", post_count_tokens},
      {"POST", "/v1/responses", "responses", post_responses},
      {"GET", "/v1/responses/*", "responses", get_response},
      {"DELETE", "/v1/responses/*", "responses", delete_response},
      {"POST", "/v1/embeddings", "embeddings", post_embeddings},
      {"GET", "/v1/models", "models", get_models},
      {"GET", "/v1/models/*", "models", get_model},
      {"POST", "/tokenize", "tokenize", post_tokenize},
      {"POST", "/v1/tokenize", "tokenize", post_tokenize},
      {"POST", "/detokenize", "detokenize", post_detokenize},
      {"POST", "/v1/detokenize", "detokenize", post_detokenize},
      {"GET", "/tokenizer_info", "tokenizer_info", get_tokenizer_info},
      {"GET", "/v1/tokenizer_info", "tokenizer_info", get_tokenizer_info},
      {"GET", "/livez", "livez", get_livez, RouteAccess::open},
      {"GET", "/readyz", "readyz", get_readyz, RouteAccess::open},
      {"GET", "/startupz", "startupz", get_startupz, RouteAccess::open},
      {"GET", "/health", "health", get_health, RouteAccess::open},
      {"GET", "/metrics", "metrics", get_metrics, RouteAccess::open},
      {"GET", "/server_info", "server_info", get_server_info},
      {"GET", "/version", "version", get_version, RouteAccess::open},
      {"GET", "/openapi.json", "openapi", get_openapi, RouteAccess::open},
      {"GET", "/", "page", get_page, RouteAccess::open},
      {"POST", "/flush_cache", "flush_cache", post_flush_cache, RouteAccess::admin},
  };
  return table;
}

void answer(ServerContext& context, std::string_view route, const Writer& writer, HttpResponse response) {
  context.metrics.count_response(route, response.status);
  writer->respond(std::move(response));
}

void prepare_on_workers(ServerContext& context, std::string_view route, const HttpRequest& request,
                        const Writer& writer, size_t body_bytes, std::function<void()> job) {
  if (context.workers.submit(body_bytes, std::move(job))) return;
  answer(context, route, writer,
         error_response(make_error(ErrorCode::overloaded, "", "too many requests are waiting to be prepared"),
                        error_form(request)));
}

namespace {

// An answer that dispatch() has no part in.
HttpResponse early(ServerContext& context, std::string_view route, const Error& error,
                   const HttpRequest& request) {
  HttpResponse response = error_response(error, error_form(request));
  context.metrics.count_response(route, response.status);
  for (const auto& header : cors_headers(context.cors_origins, request)) response.headers.push_back(header);
  return response;
}

}  // namespace

HttpResponse refuse(ServerContext& context, const Error& error, HttpRequest known) {
  known.path = with_version(std::move(known.path));
  return early(context, "refused", error, known);
}

std::optional<HttpResponse> turn_away(ServerContext& context, HttpRequest& head) {
  head.path = with_version(std::move(head.path));
  for (const Route& route : routes()) {
    if (route.method != head.method || !matches(route.path, head.path)) continue;
    const auto may = route.access == RouteAccess::key     ? may_send_body(context, head)
                     : route.access == RouteAccess::admin ? may_administer(context, head)
                                                          : Result<void>();
    if (may) return std::nullopt;
    return early(context, route.name, may.error(), head);
  }
  return std::nullopt;
}

void dispatch(ServerContext& context, HttpRequest&& request, const Writer& writer) {
  request.path = with_version(std::move(request.path));
  if (const Headers cors = cors_headers(context.cors_origins, request); !cors.empty()) {
    writer->add_headers(cors);
    if (request.method == "OPTIONS") writer->add_headers(preflight_headers(request));
  }
  const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
  std::string allowed;
  for (const Route& route : routes()) {
    const bool admin = route.access == RouteAccess::admin;
    if (!matches(route.path, request.path) || (request.admin_port && !admin)) continue;
    if (route.method == method) {
      if (const auto may = may_use(context, route, request, *writer); !may)
        return answer(context, route.name, writer, error_response(may.error(), error_form(request)));
      return route.handle(context, std::move(request), writer);
    }
    allowed += allowed.empty() ? "" : ", ";
    allowed += route.method == "GET" ? "GET, HEAD" : route.method;
  }
  if (method == "OPTIONS" && (!allowed.empty() || request.path == "*")) {
    HttpResponse response;
    response.status = 204;
    if (!allowed.empty()) response.headers.emplace_back("Allow", allowed + ", OPTIONS");
    return answer(context, "options", writer, std::move(response));
  }
  if (allowed.empty()) return not_found(context, request, writer);
  HttpResponse response =
      error_response(make_error(ErrorCode::method_not_allowed, "", "{} is not allowed for {}; allowed: {}",
                                clipped(request.method), clipped(request.path), allowed),
                     error_form(request));
  response.headers.emplace_back("Allow", allowed + ", OPTIONS");
  answer(context, "unknown", writer, std::move(response));
}

}  // namespace godwit::server
