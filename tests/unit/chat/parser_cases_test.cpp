// The public failures of api_cases.md that output parsing must make impossible, by their numbers.
#include <gtest/gtest.h>

#include <set>

#include "parse_harness.h"

namespace godwit::chat {
namespace {

const ParserOptions kThinking{.thinking = true};

int count(const Outcome& out, Delta::Kind kind) {
  int n = 0;
  for (const Delta& d : out.deltas) n += d.kind == kind;
  return n;
}

TEST(ParserCase, C01_C71_StartStateComesFromThePromptNotFromSwitches) {
  Outcome out = parse("plan…</think>42<|user|>", kThinking);
  EXPECT_EQ(out.message.reasoning, "plan…");
  EXPECT_EQ(out.message.content, "42");
  EXPECT_EQ(out.finish.reason, FinishReason::stop);
}

TEST(ParserCase, C02_CallInsideThinking) {
  auto tools =
      tools_from(R"([{"function":{"name":"read","parameters":{"properties":{"path":{"type":"string"}}}}}])");
  Outcome out = parse(
      "I need the file "
      "<tool_call>read<arg_key>path</arg_key><arg_value>a.txt</arg_value></tool_call><|observation|>",
      {.thinking = true, .tools = tools});
  EXPECT_EQ(out.message.reasoning, "I need the file ");
  ASSERT_EQ(out.message.tool_calls.size(), 1u);
  EXPECT_EQ(out.message.tool_calls[0].name, "read");
  EXPECT_EQ(out.message.tool_calls[0].arguments, R"({"path": "a.txt"})");
  EXPECT_EQ(out.message.content, "");
  EXPECT_EQ(out.finish.reason, FinishReason::tool_calls);
}

TEST(ParserCase, C03_C46_ToolCallsIsSaidOnlyWithACall) {
  EXPECT_EQ(parse("</think>no call<|observation|>", thinking_with_tools()).finish.reason, FinishReason::stop);
  EXPECT_EQ(parse("</think><tool_call></tool_call>", thinking_with_tools()).finish.reason,
            FinishReason::stop);
}

TEST(ParserCase, C04_C14_C61_CallWithoutArgumentsIsOneEmptyObject) {
  for (const auto& pieces : {std::vector<std::string_view>{"</think><tool_call>now</tool_call>"},
                             bytes_of("</think><tool_call>now</tool_call>")}) {
    Outcome out = parse_pieces(pieces, thinking_with_tools());
    ASSERT_EQ(out.message.tool_calls.size(), 1u);
    EXPECT_EQ(out.message.tool_calls[0].name, "now");
    EXPECT_EQ(out.message.tool_calls[0].arguments, "{}");
    EXPECT_EQ(count(out, Delta::Kind::call_arguments), 1);
    EXPECT_EQ(out.finish.reason, FinishReason::tool_calls);
  }
}

TEST(ParserCase, C06_WithoutToolsNothingIsACall) {
  std::string_view sample = "<tool_call>now</tool_call><arg_key>";
  EXPECT_EQ(parse(sample, {}).message.content, sample);
  ParserOptions none = with_tools();
  none.tool_choice = ToolChoice::none;
  EXPECT_EQ(parse(sample, none).message.content, sample);
}

TEST(ParserCase, C07_AnswerWithoutClosingThinkIsContent) {
  Outcome out = parse("Paris.<|user|>", kThinking);
  EXPECT_EQ(out.message.content, "Paris.");
  EXPECT_EQ(out.message.reasoning, "");
  EXPECT_EQ(out.finish.reason, FinishReason::stop);
  out = parse("Paris.", kThinking, EndReason::length);
  EXPECT_EQ(out.message.content, "");
  EXPECT_EQ(out.message.reasoning, "Paris.");
  EXPECT_EQ(out.finish.reason, FinishReason::length);
}

TEST(ParserCase, C09_C10_QuotedIntegerDoesNotCutTheArguments) {
  auto tools = tools_from(
      R"([{"function":{"name":"f","parameters":{"properties":{"n":{"type":"integer"},"s":{"type":"string"}}}}}])");
  Outcome out = parse_pieces(bytes_of("<tool_call>f<arg_key>n</arg_key><arg_value>\"42\"</arg_value>"
                                      "<arg_key>s</arg_key><arg_value>ok</arg_value></tool_call>"),
                             {.tools = tools});
  EXPECT_EQ(out.message.tool_calls.at(0).arguments, R"({"n": 42, "s": "ok"})");
}

TEST(ParserCase, C11_NameIsSentOnceAndWhole) {
  Outcome out = parse_pieces({"<tool_call>get", "_weather", "<arg_key>"}, with_tools(), EndReason::length);
  ASSERT_EQ(count(out, Delta::Kind::call_begin), 1);
  EXPECT_EQ(out.message.tool_calls.at(0).name, "get_weather");
  EXPECT_EQ(parse_pieces({"<tool_call>get"}, with_tools(), EndReason::length).deltas.size(), 0u);
}

TEST(ParserCase, C12_MissingOpeningValueTag) {
  Outcome out =
      parse("<tool_call>get_weather<arg_key>city</arg_key>\nOslo</arg_value></tool_call>", with_tools());
  EXPECT_EQ(out.message.tool_calls.at(0).arguments, R"({"city": "Oslo"})");
}

TEST(ParserCase, C13_StrayClosingTagIsNoPartOfTheName) {
  for (std::string_view sample :
       {"<tool_call>now</arg_value></tool_call>", "<tool_call>now</arg_value>",
        "<tool_call>now\n<|observation|>", "<tool_call></arg_key>now<arg_value></tool_call>"}) {
    Outcome out = parse(sample, with_tools());
    ASSERT_EQ(out.message.tool_calls.size(), 1u) << sample;
    EXPECT_EQ(out.message.tool_calls[0].name, "now");
    EXPECT_EQ(out.message.tool_calls[0].arguments, "{}");
    EXPECT_EQ(out.finish.reason, FinishReason::tool_calls);
  }
}

TEST(ParserCase, C15_ValueThatEndsLikeATag) {
  Outcome out = parse_pieces(
      bytes_of("<tool_call>write<arg_key>text</arg_key><arg_value>a<</arg_value></tool_call>"), with_tools());
  EXPECT_EQ(out.message.tool_calls.at(0).arguments, R"({"text": "a<"})");
}

TEST(ParserCase, C19_ArgumentsAreSerialisedOnce) {
  Outcome out = parse_pieces(
      bytes_of(
          "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Zürich \"\\ö\"\n</arg_value></tool_call>"),
      with_tools());
  auto value = parse_json(out.message.tool_calls.at(0).arguments);
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value->find("city")->as_string(), "Zürich \"\\ö\"\n");
}

TEST(ParserCase, C26_EmptyThinkingGivesNoReasoningDelta) {
  Outcome out = parse("</think><tool_call>now</tool_call><|observation|>", thinking_with_tools());
  EXPECT_EQ(count(out, Delta::Kind::reasoning), 0);
  EXPECT_EQ(out.deltas.front().kind, Delta::Kind::call_begin);
}

TEST(ParserCase, C30_LengthBeatsToolCallsAndClosesTheArguments) {
  Outcome out = parse(
      "<tool_call>now</tool_call><tool_call>write<arg_key>size</arg_key><arg_value>1</arg_value>"
      "<arg_key>text</arg_key><arg_value>half a \"sen",
      with_tools(), EndReason::length);
  ASSERT_EQ(out.message.tool_calls.size(), 2u);
  EXPECT_EQ(out.message.tool_calls[1].arguments, R"({"size": 1, "text": "half a \"sen"})");
  EXPECT_FALSE(out.message.tool_calls[0].truncated);
  EXPECT_TRUE(out.message.tool_calls[1].truncated);
  EXPECT_EQ(out.message.content, "");
  EXPECT_EQ(out.finish.reason, FinishReason::length);
  // Half a number is another number: it is dropped.
  out = parse("<tool_call>write<arg_key>size</arg_key><arg_value>12", with_tools(), EndReason::length);
  EXPECT_EQ(out.message.tool_calls.at(0).arguments, "{}");
}

TEST(ParserCase, C31_EndInsideThinkingIsNoEmptySuccess) {
  Outcome out = parse("let me check <|observation|>", thinking_with_tools());
  EXPECT_EQ(out.message.content, "let me check ");
  EXPECT_EQ(out.finish.reason, FinishReason::stop);
}

TEST(ParserCase, C32_StopStringsApplyToContentOnly) {
  ParserOptions options{.thinking = true, .stop = {"Question:"}};
  Outcome out = parse("The Question: is …</think>Answer 5", options);
  EXPECT_EQ(out.message.reasoning, "The Question: is …");
  EXPECT_EQ(out.message.content, "Answer 5");
  EXPECT_FALSE(out.finish.stop_string.has_value());
  out = parse("x</think>Answer 5 Question: 6", options);
  EXPECT_EQ(out.message.content, "Answer 5 ");
  EXPECT_EQ(out.finish.stop_string, "Question:");
  EXPECT_EQ(out.finish.reason, FinishReason::stop);
}

TEST(ParserCase, C33_C88_ReasoningContentAndCallsOfOneMachine) {
  Outcome out = parse("think</think>Let me look.\n<tool_call>now</tool_call>\n<tool_call>get</tool_call>\n",
                      thinking_with_tools());
  EXPECT_EQ(out.message.reasoning, "think");
  EXPECT_EQ(out.message.content, "Let me look.\n");
  EXPECT_EQ(out.message.tool_calls.size(), 2u);
}

TEST(ParserCase, C34_WritingAboutTheSyntaxLosesNothing) {
  Outcome out = parse("</think>The syntax is <tool_call>func_name</tool_call> and then more text",
                      thinking_with_tools());
  EXPECT_EQ(out.message.content, "The syntax is <tool_call>func_name</tool_call> and then more text");
  EXPECT_TRUE(out.message.tool_calls.empty());
  EXPECT_EQ(out.roll_backs, 1);
  out = parse("</think>An empty <tool_call></tool_call>block", thinking_with_tools());
  EXPECT_EQ(out.message.content, "An empty block");
}

TEST(ParserCase, C35_UndeclaredNamesAreTextInBothModes) {
  std::string_view sample =
      "<tool_call>unknown<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>!<tool_call>now</tool_call>";
  for (const auto& pieces : {std::vector<std::string_view>{sample}, bytes_of(sample)}) {
    Outcome out = parse_pieces(pieces, with_tools());
    EXPECT_EQ(out.message.content,
              "<tool_call>unknown<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>!");
    ASSERT_EQ(out.message.tool_calls.size(), 1u);
  }
}

TEST(ParserCase, C36_OtherCallSyntaxIsNotGuessed) {
  EXPECT_TRUE(parse(R"(<tool_call>{"name":"now"}</tool_call>)", with_tools()).message.tool_calls.empty());
}

TEST(ParserCase, C37_C77_TagsNeverEndUpInAName) {
  Outcome out =
      parse("<tool_call>write<tool_call>path</arg_key><arg_value>ls</arg_value></tool_call>", with_tools());
  EXPECT_TRUE(out.message.tool_calls.empty());
  EXPECT_EQ(out.message.content, "<tool_call>path</arg_key><arg_value>ls</arg_value></tool_call>");
  out = parse("<tool_call>now<tool_call>get</tool_call>", with_tools());
  ASSERT_EQ(out.message.tool_calls.size(), 1u);
  EXPECT_EQ(out.message.tool_calls[0].name, "get");
}

TEST(ParserCase, C52_C53_C55_BurstsGiveTheSameArguments) {
  std::string_view sample =
      "<tool_call>get_weather<arg_key>city</arg_key><arg_value>São "
      "Paulo</arg_value></tool_call><|observation|>";
  for (size_t burst = 1; burst <= sample.size(); ++burst) {
    std::vector<std::string_view> pieces;
    for (size_t at = 0; at < sample.size(); at += burst) pieces.push_back(sample.substr(at, burst));
    Outcome out = parse_pieces(pieces, with_tools());
    EXPECT_EQ(out.message.tool_calls.at(0).arguments, R"({"city": "São Paulo"})") << burst;
  }
}

TEST(ParserCase, C56_C58_CallsAreNumberedByPositionWithTheirOwnIds) {
  std::string_view sample =
      "<tool_call>get_weather<arg_key>city</arg_key><arg_value>1</arg_value></tool_call>"
      "<tool_call>get_weather<arg_key>city</arg_key><arg_value>2</arg_value></tool_call>";
  Outcome whole = parse(sample, with_tools());
  Outcome streamed = parse_pieces(bytes_of(sample), with_tools());
  ASSERT_EQ(whole.message.tool_calls.size(), 2u);
  std::set<std::string> ids;
  for (int i = 0; i < 2; ++i) {
    const std::string& id = whole.message.tool_calls[static_cast<size_t>(i)].id;
    EXPECT_EQ(id, streamed.message.tool_calls.at(static_cast<size_t>(i)).id);
    EXPECT_EQ(id.size(), 29u);
    EXPECT_TRUE(id.starts_with("call_"));
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 2u);
  ParserOptions other = with_tools();
  other.id_seed = 1;
  EXPECT_FALSE(ids.contains(parse(sample, other).message.tool_calls[0].id));
}

TEST(ParserCase, C59_StringArgumentsStream) {
  Outcome out = parse_pieces({"<tool_call>write<arg_key>text</arg_key><arg_value>", "line 1\n", "line 2"},
                             with_tools(), EndReason::length);
  std::vector<std::string> pieces;
  for (const Delta& d : out.deltas) {
    if (d.kind == Delta::Kind::call_arguments) pieces.push_back(d.text);
  }
  EXPECT_EQ(pieces, (std::vector<std::string>{"{\"text\": \"line 1\\n", "line 2", "\"}"}));
}

TEST(ParserCase, C73_EchoedThinkIsSwallowed) {
  for (bool opened : {true, false}) {
    Outcome out = parse("<think>got it</think>Done", {.thinking = opened});
    EXPECT_EQ(out.message.reasoning, "got it");
    EXPECT_EQ(out.message.content, "Done");
  }
}

TEST(ParserCase, C79_NoEmptyDeltasAndContentAfterReasoning) {
  Outcome out = parse_pieces(bytes_of("a<think></think></think>\nb"), thinking_with_tools());
  bool content = false;
  for (const Delta& d : out.deltas) {
    EXPECT_FALSE(d.text.empty());
    content = content || d.kind == Delta::Kind::content;
    EXPECT_EQ(d.kind == Delta::Kind::reasoning, !content);
  }
  EXPECT_EQ(out.message.content, "\nb");
}

TEST(ParserCase, C85_HeldBackPrefixIsTextAtTheEnd) {
  for (const auto& pieces : {std::vector<std::string_view>{"Hello <tool_c"}, bytes_of("Hello <tool_c")}) {
    EXPECT_EQ(parse_pieces(pieces, with_tools()).message.content, "Hello <tool_c");
  }
}

TEST(ParserCase, BlanksAroundCallsAreNotContent) {
  Outcome out = parse("</think>\n\n<tool_call>now</tool_call>\n", thinking_with_tools());
  EXPECT_EQ(out.message.content, "");
  EXPECT_EQ(count(out, Delta::Kind::content), 0);
  EXPECT_EQ(parse("</think>\n\n", thinking_with_tools()).message.content, "\n\n");
  out = parse("<tool_call>now</tool_call>\n\nSo: done", with_tools());
  EXPECT_EQ(out.message.content, "\n\nSo: done");
  EXPECT_EQ(out.deltas.back().kind, Delta::Kind::content);
}

TEST(ParserCase, EndInsideACallKeepsIt) {
  Outcome out = parse("<tool_call>get_weather<arg_key>days</arg_key><arg_value>3</arg_value>", with_tools());
  EXPECT_EQ(out.message.tool_calls.at(0).arguments, R"({"days": 3})");
  EXPECT_EQ(out.finish.reason, FinishReason::tool_calls);
  out = parse("<tool_call>get_weather<arg_key>days</arg_key><arg_value>3", with_tools());
  EXPECT_EQ(out.message.tool_calls.at(0).arguments, R"({"days": 3})");
  EXPECT_TRUE(out.message.tool_calls[0].truncated);
  EXPECT_EQ(out.finish.reason, FinishReason::stop);
}

TEST(ParserCase, NamedChoiceFinishesWithStop) {
  ParserOptions options = with_tools();
  options.tool_choice = ToolChoice::named;
  EXPECT_EQ(parse("<tool_call>now</tool_call>", options).finish.reason, FinishReason::stop);
}

TEST(ParserCase, OneCallOnlyStopsAfterTheFirst) {
  ParserOptions options = with_tools();
  options.parallel_tool_calls = false;
  Outcome out = parse("a<tool_call>now</tool_call><tool_call>get</tool_call>b", options, EndReason::length);
  EXPECT_EQ(out.message.tool_calls.size(), 1u);
  EXPECT_EQ(out.message.content, "a");
  EXPECT_EQ(out.finish.reason, FinishReason::tool_calls);
}

TEST(ParserCase, RepeatedKeysKeepTheFirstValueInBothModes) {
  Outcome out = parse(
      "<tool_call>get_weather<arg_key>city</arg_key><arg_value>a</arg_value><arg_key>city</arg_key>"
      "<arg_value>b</arg_value><arg_key>days</arg_key></tool_call>",
      with_tools());
  EXPECT_EQ(out.message.tool_calls.at(0).arguments, R"({"city": "a"})");
}

TEST(ParserCase, OverlongNameIsText) {
  std::string sample = "<tool_call>" + std::string(300, 'n') + "</tool_call>.";
  EXPECT_EQ(parse(sample, with_tools()).message.content, sample);
  EXPECT_EQ(parse_pieces(bytes_of(sample), with_tools()).message.content, sample);
}

}  // namespace
}  // namespace godwit::chat
