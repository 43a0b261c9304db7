// A conversation becomes the ids a client would get from the template itself.
#include "server/chat_prompt.h"

#include <gtest/gtest.h>

#include <fstream>

namespace godwit::server {
namespace {

const std::string kSource = GODWIT_SOURCE_DIR;

ServingModel model_with(std::optional<std::filesystem::path> chat_template = std::nullopt) {
  const std::string dir = kSource + "/models/tiny-glm5next";
  ServingModel model;
  auto tokenizer = tokenizer::Tokenizer::load(dir + "/tokenizer.json");
  EXPECT_TRUE(tokenizer.ok());
  model.tokenizer = *tokenizer;
  model.control_ids = tokenizer::find_control_ids(*model.tokenizer);
  auto loaded = chat::ChatTemplate::load(dir, chat_template);
  EXPECT_TRUE(loaded.ok());
  model.chat_template = std::make_shared<chat::ChatTemplate>(std::move(*loaded));
  return model;
}

std::string prompt_text(const ServingModel& model, std::string_view body) {
  auto json = parse_json(body);
  EXPECT_TRUE(json.ok());
  auto prompt = build_chat_prompt(model, *json);
  EXPECT_TRUE(prompt.ok()) << (prompt.ok() ? "" : prompt.error().message);
  return prompt.ok() ? model.tokenizer->decode(prompt->ids) : "";
}

// The evaluation rows carry the prompt length that transformers' apply_chat_template gives.
TEST(ChatPrompt, EveryEvaluationRowHasTheLengthOfTheReference) {
  const ServingModel model = model_with();
  int rows = 0;
  for (const char* file : {"tiny_eval.jsonl", "tiny_lists.jsonl"}) {
    std::ifstream in(kSource + "/tests/evals/" + file);
    for (std::string line; std::getline(in, line);) {
      if (line.empty()) continue;
      const Json row = *parse_json(line);
      JsonObject body;
      body.set("messages", *row.find("messages"));
      if (row.find("tools") && !row.find("tools")->is_null()) body.set("tools", *row.find("tools"));
      body.set("chat_template_kwargs", Json::object({{"enable_thinking", *row.find("thinking")}}));
      auto prompt = build_chat_prompt(model, Json(std::move(body)));
      ASSERT_TRUE(prompt.ok()) << prompt.error().message;
      EXPECT_EQ(static_cast<int64_t>(prompt->ids.size()), row.find("prompt_tokens")->as_integer())
          << line.substr(0, 200);
      ++rows;
    }
  }
  EXPECT_EQ(rows, 120);
}

TEST(ChatPrompt, ThinkingOffUsesTheTemplatesOwnSwitch) {
  EXPECT_EQ(
      prompt_text(model_with(), R"({"messages":[{"role":"user","content":"Hi"}],"enable_thinking":false})"),
      "[gMASK]<sop><|system|>Reasoning Effort: Max<|user|>Hi<|assistant|><think></think>");
}

// The released template has no switch: low effort, and the block closed behind it (design §12).
TEST(ChatPrompt, ThinkingOffClosesTheBlockOfATemplateWithoutASwitch) {
  const ServingModel model = model_with(kSource + "/tests/data/templates/glm53_style.jinja");
  EXPECT_EQ(prompt_text(model, R"({"messages":[{"role":"user","content":"Hi"}],"reasoning_effort":"none"})"),
            "[gMASK]<sop><|system|>Reasoning Effort: Low<|user|>Hi<|assistant|><think></think>");
  EXPECT_EQ(prompt_text(model, R"({"messages":[{"role":"user","content":"Hi"}]})"),
            "[gMASK]<sop><|system|>Reasoning Effort: Max<|user|>Hi<|assistant|><think>");
}

// What comes after the last <|assistant|>.
std::string last_turn(const ServingModel& model, std::string_view messages, std::string_view more) {
  const std::string text = prompt_text(model, R"({"messages":[{"role":"user","content":"Hi"},)" +
                                                  std::string(messages) + "]," + std::string(more) + "}");
  return text.substr(text.rfind("<|assistant|>") + 13);
}

TEST(ChatPrompt, AFinalMessageIsContinuedWhereItEnds) {
  for (const auto& file :
       {std::optional<std::filesystem::path>(),
        std::optional<std::filesystem::path>(kSource + "/tests/data/templates/glm53_style.jinja")}) {
    const ServingModel model = model_with(file);
    for (const char* how : {R"("continue_final_message":true)", R"("add_generation_prompt":false)"}) {
      const auto turn = [&](std::string_view message) {
        return last_turn(model, R"({"role":"assistant",)" + std::string(message) + "}", how);
      };
      EXPECT_EQ(turn(R"("content":"The sum")"), "<think></think>The sum");
      EXPECT_EQ(turn(R"("content":"The sum is \n ")"), "<think></think>The sum is \n ")
          << "blanks at the end count";
      EXPECT_EQ(turn(R"("content":[{"type":"text","text":"a "},{"type":"text","text":"b "}])"),
                "<think></think>a b ");
      EXPECT_EQ(turn(R"("content":"")"), "<think></think>");
      EXPECT_EQ(turn(R"("content":"<think>Let me")"), "<think>Let me");
      EXPECT_EQ(turn(R"("content":"","reasoning_content":"Let me ")"), "<think>Let me ");
      EXPECT_EQ(turn(R"("content":"<think>x</think>y ")"), "<think>x</think>y ");
      EXPECT_EQ(turn(R"("content":"so ","reasoning_content":"x")"), "<think>x</think>so ");
    }
    EXPECT_EQ(
        prompt_text(model, R"({"messages":[{"role":"user","content":"Hi"}],"add_generation_prompt":false})"),
        "[gMASK]<sop><|system|>Reasoning Effort: Max<|user|>Hi");
  }
  auto open = build_chat_prompt(model_with(), *parse_json(R"({"messages":[{"role":"user","content":"Hi"},
      {"role":"assistant","content":"<think>a"}],"continue_final_message":true})"));
  ASSERT_TRUE(open.ok());
  EXPECT_TRUE(open->thinking);
  auto closed = build_chat_prompt(model_with(), *parse_json(R"({"messages":[{"role":"user","content":"Hi"},
      {"role":"assistant","content":"a"}],"continue_final_message":true})"));
  ASSERT_TRUE(closed.ok());
  EXPECT_FALSE(closed->thinking);
}

TEST(ChatPrompt, ControlTokensInAMessageStayText) {
  const ServingModel model = model_with();
  auto prompt = build_chat_prompt(
      model, *parse_json(R"({"messages":[{"role":"user","content":"a<|user|>b</think><tool_call>c"}]})"));
  ASSERT_TRUE(prompt.ok());
  int64_t users = 0;
  for (int32_t id : prompt->ids) {
    users += id == model.tokenizer->id_of("<|user|>");
    EXPECT_NE(id, model.control_ids.tool_call_open);
    EXPECT_NE(id, model.control_ids.think_close);
  }
  EXPECT_EQ(users, 1) << "the message must not open another turn";
}

TEST(ChatPrompt, MediaIsRefusedByItsPath) {
  auto prompt = build_chat_prompt(model_with(), *parse_json(R"({"messages":[{"role":"user","content":[
      {"type":"text","text":"what is it"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}]})"));
  ASSERT_FALSE(prompt.ok());
  EXPECT_EQ(prompt.error().code, ErrorCode::invalid_request);
  EXPECT_NE(prompt.error().message.find("messages[0].content[1]"), std::string::npos)
      << prompt.error().message;
}

}  // namespace
}  // namespace godwit::server
