#include "server/error_response.h"

#include "base/json.h"
#include "tokenizer/utf8.h"

namespace godwit::server {
void append_error_json(std::string& out, const Error& error) {
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

HttpResponse error_response(const Error& error) {
  HttpResponse response;
  response.status = info(error.code).http_status;
  append_error_json(response.body, error);
  if (response.status == 429 || response.status == 503) response.headers.emplace_back("Retry-After", "1");
  if (response.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace godwit::server
