// What a request can make the server write into its log: a line or two, never one for each of its parts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <tuple>

#include "harness.h"

namespace godwit::server::testing {
namespace {

using ::testing::HasSubstr;

// Everything that is logged while it lives.
class LogCapture {
 public:
  LogCapture() : before_(spdlog::default_logger()) {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text_);
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("captured", std::move(sink)));
  }
  ~LogCapture() { spdlog::set_default_logger(before_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::shared_ptr<spdlog::logger> before_;
};

std::string repeated(std::string_view item, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += (i == 0 ? "" : ",") + std::string(item);
  return out;
}

TEST(Log, ARequestWithAThousandOddPartsWritesOneLineAboutThem) {
  const auto nothing = [](const engine::Request&) { return Script(); };
  const std::string call = R"({"id":"a","type":"function","function":{"name":"f","arguments":"{bad"}})";
  for (const auto& [path, body, says] : {
           std::tuple("/v1/chat/completions",
                      R"({"messages":[{"role":"assistant","tool_calls":[)" + repeated(call, 1000) +
                          R"(]},{"role":"user","content":"Hi"}]})",
                      "is no JSON object"),
           std::tuple("/v1/messages",
                      R"({"max_tokens":5,"messages":[{"role":"user","content":"Hi"}],"tools":[)" +
                          repeated(R"({"type":"web_search_20250305","name":"web_search"})", 1000) + "]}",
                      "runs on Anthropic's servers"),
           std::tuple("/v1/responses",
                      R"({"input":"Hi","tools":[)" + repeated(R"({"type":"web_search"})", 1000) + "]}",
                      "is not available here"),
       }) {
    std::string log;
    {
      Harness harness(nothing, {}, 65536);
      LogCapture capture;  // the harness turns logging off
      EXPECT_EQ(harness.post(path, body).status, 200) << path;
      harness.server.reset();  // nothing is written any more
      log = capture.text();
    }
    EXPECT_THAT(log, HasSubstr(says)) << path;
    EXPECT_THAT(log, HasSubstr("(and 999 more)")) << path;
    EXPECT_LE(std::count(log.begin(), log.end(), '\n'), 3) << path << log.substr(0, 1000);
  }
}

}  // namespace
}  // namespace godwit::server::testing
