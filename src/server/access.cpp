#include "server/access.h"

#include <strings.h>

#include <algorithm>
#include <charconv>

#include "base/clock.h"

namespace godwit::server {
namespace {

std::string_view key_in(const HttpRequest& request) {
  constexpr std::string_view kBearer = "bearer ";
  std::string_view value = request.header("authorization");
  if (value.size() > kBearer.size() && strncasecmp(value.data(), kBearer.data(), kBearer.size()) == 0) {
    value.remove_prefix(kBearer.size());
    while (value.starts_with(' ')) value.remove_prefix(1);
    return value;
  }
  return request.header("x-api-key");
}

// Errors: unauthorized.
Result<ApiKey*> find_key(ServerContext& context, const HttpRequest& request) {
  const std::string_view secret = key_in(request);
  ApiKey* const key = secret.empty() ? nullptr : context.keys->find(secret);
  if (key) return key;
  context.metrics.count_key_request("", "unknown");
  if (!secret.empty()) return make_error(ErrorCode::unauthorized, "", "the API key is not known here");
  return make_error(ErrorCode::unauthorized, "",
                    "an API key is needed, as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\"");
}

}  // namespace

Result<void> authorise(ServerContext& context, HttpRequest& request, ResponseWriter& writer) {
  if (!context.keys) return {};
  if (!request.api_key) {
    GODWIT_ASSIGN(request.api_key, find_key(context, request));
  }
  ApiKey* const key = request.api_key;
  auto lease = key->admit(request.body.size(), SteadyClock().now_ns());
  context.metrics.count_key_request(key->name(), lease ? "accepted" : "limited");
  if (!lease) return std::move(lease.error());
  request.key = key->name();
  request.key_salt = key->cache_salt();
  writer.hold(std::move(*lease));
  return {};
}

Result<void> may_send_body(ServerContext& context, HttpRequest& head) {
  if (!context.keys) return {};
  GODWIT_ASSIGN(head.api_key, find_key(context, head));
  const std::string_view length = head.header("content-length");
  size_t bytes = 0;  // a chunked body says it by and by: authorise() looks again
  std::from_chars(length.data(), length.data() + length.size(), bytes);
  auto may = head.api_key->may_send(bytes);
  if (!may) context.metrics.count_key_request(head.api_key->name(), "limited");
  return may;
}

Headers cors_headers(const std::vector<std::string>& origins, const HttpRequest& request) {
  const std::string_view origin = request.header("origin");
  if (origin.empty()) return {};
  const bool any = std::find(origins.begin(), origins.end(), "*") != origins.end();
  if (!any && std::find(origins.begin(), origins.end(), origin) == origins.end()) return {};
  return {{"Access-Control-Allow-Origin", any ? "*" : std::string(origin)},
          {"Vary", "Origin"},
          {"Access-Control-Expose-Headers", "x-request-id, request-id, openai-processing-ms, retry-after"}};
}

Headers preflight_headers(const HttpRequest& request) {
  Headers out = {{"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"},
                 {"Access-Control-Max-Age", "600"}};
  const std::string_view wanted = request.header("access-control-request-headers");
  out.emplace_back("Access-Control-Allow-Headers",
                   wanted.empty() ? "authorization, content-type, x-api-key" : std::string(wanted));
  return out;
}

}  // namespace godwit::server
