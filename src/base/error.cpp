#include "base/error.h"

#include <array>

namespace godwit {

const ErrorInfo& info(ErrorCode code) {
  static constexpr std::string_view kInvalid = "invalid_request_error";
  static constexpr std::array<ErrorInfo, 19> kTable = {{
      {400, kInvalid, "", 1},
      {400, kInvalid, "context_length_exceeded", 1},
      {401, "authentication_error", "invalid_api_key", 1},
      {403, "permission_error", "", 1},
      {404, "not_found_error", "", 1},
      {404, "not_found_error", "model_not_found", 1},
      {405, kInvalid, "method_not_allowed", 1},
      {408, "timeout_error", "request_timeout", 1},
      {413, kInvalid, "request_too_large", 1},
      {415, kInvalid, "unsupported_media_type", 1},
      {422, "unprocessable_entity_error", "", 1},
      {429, "rate_limit_error", "rate_limit_exceeded", 1},
      {431, kInvalid, "request_header_fields_too_large", 1},
      {500, "server_error", "", 1},
      {501, "server_error", "not_implemented", 1},
      {503, "service_unavailable", "overloaded", 1},
      {400, kInvalid, "", 2},
      {500, "server_error", "", 3},
      {500, "server_error", "", 4},
  }};
  static_assert(kTable.size() == static_cast<size_t>(ErrorCode::device) + 1);
  return kTable[static_cast<size_t>(code)];
}

}  // namespace godwit
