#include "server/error_response.h"

#include "base/json.h"
#include "tokenizer/utf8.h"

namespace godwit::server {
namespace {

// The type of the status, as Anthropic's clients know it (api spec §4.11).
std::string_view anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

void append_anthropic_error(std::string& out, const Error& error, std::string_view request_id) {
  out += R"({"type":"error","error":{"type":)";
  append_json_string(out, anthropic_type(info(error.code).http_status));
  out += R"(,"message":)";
  append_json_string(out, tokenizer::replace_malformed(error.message));
  out += R"(},"request_id":)";
  append_json_string(out, request_id);
  out += "}";
}

}  // namespace

ErrorForm error_form(const HttpRequest& request) {
  const bool anthropic =
      request.path.starts_with("/v1/messages") || !request.header("anthropic-version").empty();
  return {anthropic ? ErrorStyle::anthropic : ErrorStyle::openai, request.id};
}

void append_error_json(std::string& out, const Error& error, const ErrorForm& form) {
  if (form.style == ErrorStyle::anthropic) return append_anthropic_error(out, error, form.request_id);
  const ErrorInfo& row = info(error.code);
  out += R"({"error":{"message":)";
  // A message may quote a path or a header, which are bytes; the answer is JSON, which is UTF-8.
  append_json_string(out, tokenizer::replace_malformed(error.message));
  out += R"(,"type":)";
  append_json_string(out, row.type);
  out += R"(,"param":)";
  if (error.field.empty()) {
    out += "null";
  } else {
    append_json_string(out, tokenizer::replace_malformed(error.field));
  }
  out += R"(,"code":)";
  if (row.code.empty()) {
    out += "null";
  } else {
    append_json_string(out, row.code);
  }
  out += "}}";
}

HttpResponse error_response(const Error& error, const ErrorForm& form) {
  HttpResponse response;
  response.status = info(error.code).http_status;
  append_error_json(response.body, error, form);
  if (response.status == 429 || response.status == 503) response.headers.emplace_back("Retry-After", "1");
  if (response.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace godwit::server
