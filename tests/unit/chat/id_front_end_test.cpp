#include "chat/id_front_end.h"

#include <gtest/gtest.h>

#include "byte_tokenizer.h"
#include "chat/prompt.h"
#include "parse_harness.h"

namespace godwit::chat {
namespace {

struct Fixture {
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer = byte_tokenizer();
  tokenizer::ControlIds ids = tokenizer::find_control_ids(*tokenizer);

  std::vector<int32_t> encode(std::string_view text) const { return tokenizer->encode(text).value(); }
  Message message(IdFrontEnd& front, std::string_view text, EndReason reason = EndReason::stop) const {
    for (int32_t id : encode(text)) front.push(id);
    front.end(reason);
    Message out;
    for (const Delta& d : front.parser().take()) apply(out, d);
    return out;
  }
  IdFrontEnd front(ParserOptions options, IdOptions id_options) const {
    return IdFrontEnd(tokenizer, ids, std::move(id_options), std::move(options));
  }
  IdOptions stops() const { return {.stop_ids = {ids.end_of_text, ids.user, ids.observation}}; }
};

TEST(Prompt, C01_C05_LastThinkTagOfThePromptDecides) {
  Fixture f;
  EXPECT_TRUE(starts_thinking(f.encode("<think>a</think>b<think>"), f.ids));
  EXPECT_FALSE(starts_thinking(f.encode("<think>short plan</think>"), f.ids));
  EXPECT_FALSE(starts_thinking(f.encode("no tags"), f.ids));
  EXPECT_FALSE(starts_thinking({}, f.ids));
  std::vector<int32_t> absent = {-1};
  EXPECT_FALSE(starts_thinking(absent, tokenizer::ControlIds{}));
}

TEST(Prompt, ClosesThinkingOnlyWhereItIsOpen) {
  Fixture f;
  std::vector<int32_t> prompt = f.encode("hi<think>");
  close_thinking(prompt, f.ids);
  EXPECT_EQ(prompt, f.encode("hi<think></think>"));
  close_thinking(prompt, f.ids);
  EXPECT_EQ(prompt, f.encode("hi<think></think>"));
}

TEST(IdFrontEnd, C43_CountsReasoningFromThePromptsOpenTag) {
  Fixture f;
  struct Row {
    std::string_view text;
    EndReason reason;
    int64_t reasoning, completion;
  };
  for (const Row& row : {Row{"0123456789</think>answer<|user|>", EndReason::stop, 10, 18},
                         Row{"01234", EndReason::length, 5, 5}, Row{"01234<|user|>", EndReason::stop, 5, 6},
                         Row{"ab<tool_call>now</tool_call>", EndReason::stop, 2, 7},
                         Row{"ab<tool_call>xy</tool_call>c</think>d", EndReason::stop, 7, 9},
                         Row{"ab<tool_call>xy</think>d", EndReason::stop, 5, 7},
                         Row{"<think>ab</think>c<think>de</think>", EndReason::stop, 5, 9}}) {
    IdFrontEnd front = f.front(thinking_with_tools(), f.stops());
    f.message(front, row.text, row.reason);
    EXPECT_EQ(front.parser().reasoning_tokens(), row.reasoning) << row.text;
    EXPECT_EQ(front.completion_tokens(), row.completion) << row.text;
  }
}

TEST(IdFrontEnd, C23_StopIdsGiveNoText) {
  Fixture f;
  IdFrontEnd front = f.front({}, f.stops());
  EXPECT_EQ(f.message(front, "Answer<|user|>").content, "Answer");
  // A stop id of the request may be an ordinary token.
  IdFrontEnd newline = f.front({}, {.stop_ids = {'\n'}});
  EXPECT_EQ(f.message(newline, "a\n").content, "a");
  IdFrontEnd included = f.front({.include_stop = true}, {.stop_ids = {'\n'}});
  EXPECT_EQ(f.message(included, "a\n").content, "a\n");
  IdFrontEnd not_the_end = f.front({}, {.stop_ids = {'\n'}});
  EXPECT_EQ(f.message(not_the_end, "a\nb\n", EndReason::length).content, "a\nb\n");
}

TEST(IdFrontEnd, ATagAsStopIdStillCountsAsTag) {
  Fixture f;
  IdFrontEnd front = f.front(with_tools(), {.stop_ids = {f.ids.tool_call_close}});
  Message message = f.message(front, "<tool_call>now</tool_call>");
  ASSERT_EQ(message.tool_calls.size(), 1u);
  EXPECT_EQ(front.parser().finish().reason, FinishReason::tool_calls);
}

TEST(IdFrontEnd, SpecialTokensAreShownOnRequest) {
  Fixture f;
  IdFrontEnd hidden = f.front({}, {});
  EXPECT_EQ(f.message(hidden, "a<|user|>b").content, "ab");
  IdFrontEnd shown = f.front({}, {.show_special = true});
  EXPECT_EQ(f.message(shown, "a<|user|>b").content, "a<|user|>b");
}

TEST(IdFrontEnd, C62_UnfinishedCharactersNeverLeakAndEndAsReplacement) {
  Fixture f;
  IdFrontEnd front = f.front({}, {});
  EXPECT_TRUE(front.push(0xE6));
  EXPECT_TRUE(front.push(0xB0));
  EXPECT_TRUE(front.parser().take().empty());
  front.end(EndReason::length);
  std::vector<Delta> deltas = front.parser().take();
  ASSERT_EQ(deltas.size(), 1u);
  EXPECT_EQ(deltas[0].text, "\uFFFD");
  // A tag ends the character before it, too.
  IdFrontEnd cut = f.front({.thinking = true}, {});
  for (int32_t id : {0xE6, f.ids.think_close, int32_t{'x'}}) cut.push(id);
  cut.end(EndReason::stop);
  Message message;
  for (const Delta& d : cut.parser().take()) apply(message, d);
  EXPECT_EQ(message.reasoning, "\uFFFD");
  EXPECT_EQ(message.content, "x");
}

TEST(IdFrontEnd, IdsAfterTheStopAreNotCounted) {
  Fixture f;
  IdFrontEnd front = f.front({.stop = {"END"}}, {});
  int pushed = 0;
  for (int32_t id : f.encode("abENDcd")) pushed += front.push(id);
  EXPECT_EQ(pushed, 4);
  EXPECT_EQ(front.completion_tokens(), 5);
  front.end(EndReason::length);
  EXPECT_EQ(front.parser().finish().reason, FinishReason::stop);
  EXPECT_EQ(front.parser().finish().stop_string, "END");
}

}  // namespace
}  // namespace godwit::chat
