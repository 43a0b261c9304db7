// The one error table (design §6): every failure a user can reach has a code here, and a code maps 1:1 to an
// HTTP status, an OpenAI error type and an exit code of the command line (design §5).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace godwit {

enum class ErrorCode : uint8_t {
  invalid_request,     // 400
  context_length,      // 400, code context_length_exceeded
  unauthorized,        // 401
  forbidden,           // 403
  not_found,           // 404
  model_not_found,     // 404
  method_not_allowed,  // 405
  request_timeout,     // 408
  too_large,           // 413
  unsupported_media,   // 415
  unprocessable,       // 422
  overloaded,          // 429 queue full
  header_too_large,    // 431
  internal,            // 500
  unimplemented,       // 501
  unavailable,         // 503 loading, draining or engine dead
  usage,               // command line: exit 2
  data_refused,        // model or data: exit 3
  device,              // exit 4
};

struct ErrorInfo {
  int http_status;
  std::string_view type;  // OpenAI error.type
  std::string_view code;  // OpenAI error.code, empty = null
  int exit_code;
};

const ErrorInfo& info(ErrorCode code);

// What was wrong, in words for a person: name the field, the value, the limit and what to do.
struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;
  std::string field;  // request field path ("messages[2].role") or tensor or flag; empty when there is none
};

}  // namespace godwit
