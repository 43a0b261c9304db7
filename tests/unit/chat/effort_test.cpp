#include "chat/effort.h"

#include <gtest/gtest.h>

namespace godwit::chat {
namespace {

Thinking resolved(std::string_view body, std::string_view default_effort = "") {
  auto out = resolve_thinking(parse_json(body).value(), default_effort);
  EXPECT_TRUE(out.ok()) << body << out.error().message;
  return out.ok() ? *out : Thinking();
}

std::string kwargs(std::string_view body, std::string_view default_effort = "") {
  return dump_json(Json(resolved(body, default_effort).template_kwargs));
}

TEST(EffortCase, C08_EveryEffortIsMappedOrRefused) {
  EXPECT_EQ(kwargs("{}"), "{}");
  for (const char* effort : {"minimal", "low"}) {
    EXPECT_EQ(kwargs(fmt::format(R"({{"reasoning_effort":"{}"}})", effort)),
              R"({"reasoning_effort": "low"})");
  }
  for (const char* effort : {"medium", "high"}) {
    EXPECT_EQ(kwargs(fmt::format(R"({{"reasoning_effort":"{}"}})", effort)),
              R"({"reasoning_effort": "high"})");
  }
  for (const char* effort : {"xhigh", "max"}) {
    EXPECT_EQ(kwargs(fmt::format(R"({{"reasoning_effort":"{}"}})", effort)), "{}");
  }
  EXPECT_TRUE(resolved(R"({"reasoning_effort":"none"})").off);
  for (const char* effort : {"\"Medium\"", "\"\"", "\"ultra\"", "3"}) {
    auto out = resolve_thinking(parse_json(fmt::format(R"({{"reasoning_effort":{}}})", effort)).value(), "");
    ASSERT_FALSE(out.ok()) << effort;
    EXPECT_EQ(out.error().field, "reasoning_effort");
  }
}

TEST(EffortCase, C49_EveryDialectIsRead) {
  EXPECT_EQ(kwargs(R"({"reasoning":{"effort":"low"}})"), R"({"reasoning_effort": "low"})");
  EXPECT_EQ(kwargs(R"({"output_config":{"effort":"high"}})"), R"({"reasoning_effort": "high"})");
  EXPECT_EQ(kwargs(R"({"extra_body":{"reasoning_effort":"low"}})"), R"({"reasoning_effort": "low"})");
  EXPECT_EQ(kwargs(R"({"chat_template_kwargs":{"reasoning_effort":"low"},"reasoning_effort":"high"})"),
            R"({"reasoning_effort": "low"})");
  EXPECT_FALSE(resolved(R"({"thinking":{"type":"adaptive","budget_tokens":0}})").off);
  EXPECT_FALSE(resolved(R"({"thinking":{"type":"some_new_type"}})").off);
}

TEST(EffortCase, C01_EverySwitchTurnsThinkingOff) {
  for (std::string_view body :
       {R"({"chat_template_kwargs":{"enable_thinking":false}})",
        R"({"chat_template_kwargs":{"thinking":false}})", R"({"enable_thinking":false})",
        R"({"thinking":{"type":"disabled"}})", R"({"reasoning_effort":"none"})",
        R"({"reasoning":{"enabled":false}})", R"({"reasoning_budget":0})", R"({"thinking":false})",
        R"({"extra_body":{"chat_template_kwargs":{"enable_thinking":false}}})",
        R"({"reasoning_effort":"high","enable_thinking":false})"}) {
    Thinking out = resolved(body);
    EXPECT_TRUE(out.off) << body;
    EXPECT_EQ(*out.template_kwargs.find("enable_thinking"), Json(false)) << body;
  }
  EXPECT_FALSE(resolved(R"({"enable_thinking":true,"reasoning_budget":-1})").off);
}

TEST(Effort, DefaultComesLast) {
  EXPECT_EQ(kwargs("{}", "high"), R"({"reasoning_effort": "high"})");
  EXPECT_EQ(kwargs(R"({"reasoning_effort":"max"})", "high"), "{}");
  EXPECT_TRUE(resolved("{}", "none").off);
  EXPECT_FALSE(resolved(R"({"enable_thinking":true})", "none").off);
  EXPECT_FALSE(resolved(R"({"reasoning_effort":"low"})", "none").off);
}

TEST(EffortCase, C25_ClearThinkingFromBothPlaces) {
  EXPECT_EQ(kwargs(R"({"thinking":{"type":"enabled","clear_thinking":true}})"),
            R"({"clear_thinking": true})");
  EXPECT_EQ(kwargs(R"({"chat_template_kwargs":{"clear_thinking":false},"thinking":{"clear_thinking":true}})"),
            R"({"clear_thinking": false})");
}

TEST(Effort, ReasoningMayBeLeftOut) {
  EXPECT_TRUE(resolved("{}").include_reasoning);
  EXPECT_FALSE(resolved(R"({"include_reasoning":false})").include_reasoning);
  EXPECT_FALSE(resolved(R"({"reasoning":{"exclude":true}})").include_reasoning);
}

TEST(Effort, NamesTheFieldOfABadSwitch) {
  const std::pair<std::string_view, std::string_view> kRows[] = {
      {R"({"enable_thinking":"no"})", "enable_thinking"},
      {R"({"chat_template_kwargs":[]})", "chat_template_kwargs"},
      {R"({"chat_template_kwargs":{"enable_thinking":0}})", "chat_template_kwargs.enable_thinking"},
      {R"({"reasoning":"high"})", "reasoning"},
      {R"({"reasoning":{"effort":1}})", "reasoning.effort"},
      {R"({"thinking":"off"})", "thinking"},
      {R"({"thinking":{"clear_thinking":1}})", "thinking.clear_thinking"},
      {R"({"include_reasoning":1})", "include_reasoning"}};
  for (const auto& [body, field] : kRows) {
    auto out = resolve_thinking(parse_json(body).value(), "");
    ASSERT_FALSE(out.ok()) << body;
    EXPECT_EQ(out.error().field, field);
    EXPECT_EQ(out.error().code, ErrorCode::invalid_request);
  }
}

}  // namespace
}  // namespace godwit::chat
