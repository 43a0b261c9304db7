#include "base/error.h"

#include <gtest/gtest.h>

#include "base/result.h"

namespace godwit {
namespace {

TEST(ErrorTable, EveryCodeHasItsStatus) {
  const std::pair<ErrorCode, int> kStatus[] = {{ErrorCode::invalid_request, 400},
                                               {ErrorCode::context_length, 400},
                                               {ErrorCode::unauthorized, 401},
                                               {ErrorCode::forbidden, 403},
                                               {ErrorCode::not_found, 404},
                                               {ErrorCode::model_not_found, 404},
                                               {ErrorCode::method_not_allowed, 405},
                                               {ErrorCode::request_timeout, 408},
                                               {ErrorCode::too_large, 413},
                                               {ErrorCode::unsupported_media, 415},
                                               {ErrorCode::unprocessable, 422},
                                               {ErrorCode::overloaded, 429},
                                               {ErrorCode::header_too_large, 431},
                                               {ErrorCode::internal, 500},
                                               {ErrorCode::unimplemented, 501},
                                               {ErrorCode::unavailable, 503},
                                               {ErrorCode::usage, 400},
                                               {ErrorCode::data_refused, 500},
                                               {ErrorCode::device, 500}};
  EXPECT_EQ(std::size(kStatus), static_cast<size_t>(ErrorCode::device) + 1);
  for (const auto& [code, status] : kStatus) {
    EXPECT_EQ(info(code).http_status, status) << static_cast<int>(code);
    EXPECT_FALSE(info(code).type.empty()) << static_cast<int>(code);
  }
}

TEST(ErrorTable, ExitCodesFollowTheCommandLine) {
  EXPECT_EQ(info(ErrorCode::internal).exit_code, 1);
  EXPECT_EQ(info(ErrorCode::usage).exit_code, 2);
  EXPECT_EQ(info(ErrorCode::data_refused).exit_code, 3);
  EXPECT_EQ(info(ErrorCode::device).exit_code, 4);
}

TEST(ErrorTable, ContextOverflowHasTheCodeClientsMatch) {
  EXPECT_EQ(info(ErrorCode::context_length).code, "context_length_exceeded");
  EXPECT_EQ(info(ErrorCode::model_not_found).code, "model_not_found");
  EXPECT_EQ(info(ErrorCode::unauthorized).code, "invalid_api_key");
}

Result<int> half(int n) {
  if (n % 2 != 0) return make_error(ErrorCode::invalid_request, "n", "n is {}, must be even", n);
  return n / 2;
}
Result<int> quarter(int n) {
  GODWIT_ASSIGN(int h, half(n));
  return half(h);
}

TEST(Result, AssignPassesTheErrorOn) {
  EXPECT_EQ(quarter(8).value(), 2);
  Result<int> refused = quarter(6);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "n is 3, must be even");
  EXPECT_EQ(refused.error().field, "n");
}

}  // namespace
}  // namespace godwit
