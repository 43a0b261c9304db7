// ChatTemplate: where it comes from, what it is given, what it says about origins.
#include "chat/template.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <fstream>

namespace godwit::chat {
namespace {

namespace fs = std::filesystem;

class TemplateFiles : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(testing::TempDir()) / ("template_" + std::to_string(::getpid()));
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  fs::path write(const std::string& name, std::string_view text) {
    std::ofstream(dir_ / name) << text;
    return dir_ / name;
  }
  static std::string render(const Result<ChatTemplate>& chat_template) {
    if (!chat_template.ok()) return "error: " + chat_template.error().message;
    const Json messages{JsonArray{}};
    const auto rendered = chat_template->render({.messages = messages});
    return rendered.ok() ? rendered->text() : "error: " + rendered.error().message;
  }

  fs::path dir_;
};

TEST_F(TemplateFiles, TheFileWinsOverTheConfigField) {
  write("tokenizer_config.json",
        R"({"chat_template": "field", "bos_token": "<s>", "eos_token": {"content": "</s>"}})");
  EXPECT_EQ(render(ChatTemplate::load(dir_)), "field");
  write("chat_template.jinja", "file {{ bos_token }}{{ eos_token }}{{ pad_token is defined }}\n");
  EXPECT_EQ(render(ChatTemplate::load(dir_)), "file <s></s>False");
  EXPECT_EQ(render(ChatTemplate::load(dir_, write("other.jinja", "other {{ bos_token }}"))), "other <s>");
}

TEST_F(TemplateFiles, ANamedTemplateIsTheDefaultOne) {
  write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]})");
  EXPECT_EQ(render(ChatTemplate::load(dir_)), "d");
}

TEST_F(TemplateFiles, ErrorsNameTheFile) {
  EXPECT_NE(render(ChatTemplate::load(dir_)).find("has neither chat_template.jinja nor"), std::string::npos);
  EXPECT_NE(render(ChatTemplate::load(dir_, dir_ / "absent.jinja")).find("absent.jinja"), std::string::npos);
  write("chat_template.jinja", "{% if %}");
  const auto bad = ChatTemplate::load(dir_);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, ErrorCode::data_refused);
  EXPECT_TRUE(bad.error().message.starts_with("chat_template.jinja:1: ")) << bad.error().message;
  write("tokenizer_config.json", "{");
  EXPECT_NE(render(ChatTemplate::load(dir_)).find("tokenizer_config.json"), std::string::npos);
}

TEST(ChatTemplate, KwargsAreVariablesButCannotReplaceTheConversation) {
  const auto chat_template = ChatTemplate::parse(
      "{{ effort }} {{ bos_token }} {{ messages | length }} {{ tools is none }} {{ add_generation_prompt }}",
      "t", Json::object({{"bos_token", "<s>"}}).as_object());
  ASSERT_TRUE(chat_template.ok());
  const Json messages{JsonArray{Json(1)}};
  const Json kwargs = Json::object({{"effort", "low"}, {"bos_token", "<b>"}, {"messages", 5}, {"tools", 1}});
  const auto rendered = chat_template->render(
      {.messages = messages, .kwargs = &kwargs.as_object(), .add_generation_prompt = false});
  ASSERT_TRUE(rendered.ok());
  EXPECT_EQ(rendered->text(), "low <b> 1 True False");
}

TEST(ChatTemplate, TinyModelRendersAConversation) {
  const auto chat_template = ChatTemplate::load(fs::path(GODWIT_SOURCE_DIR) / "models/tiny-glm5next");
  ASSERT_TRUE(chat_template.ok()) << chat_template.error().message;
  const auto messages =
      parse_json(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "<|user|>x"},
    {"role": "assistant", "content": "<think>r</think> A ", "tool_calls": [{"function": {"name": "f", "arguments":
    {"a": "s", "b": [1, 2.0, "é"]}}}]}, {"role": "tool", "content": "R"}])");
  ASSERT_TRUE(messages.ok());
  const auto rendered = chat_template->render({.messages = *messages});
  ASSERT_TRUE(rendered.ok()) << rendered.error().message;
  const std::string text = rendered->text();
  EXPECT_EQ(
      text,
      "[gMASK]<sop><|system|>Reasoning Effort: Max<|system|>S<|user|><|user|>x<|assistant|><think>r</think>A"
      "<tool_call>f<arg_key>a</arg_key><arg_value>s</arg_value><arg_key>b</arg_key>"
      "<arg_value>[1, 2.0, \"é\"]</arg_value></tool_call><|observation|><tool_response>R</tool_response>"
      "<|assistant|><think>");
  // The user's "<|user|>" is literal text, the template's is a token.
  const size_t role = text.find("<|user|>");
  size_t covering = 0;
  for (const auto& range : rendered->literal_ranges()) {
    EXPECT_FALSE(range.begin < role + 8 && role < range.end);
    if (range.begin == role + 8) covering = range.end - range.begin;
  }
  EXPECT_EQ(covering, std::string_view("<|user|>x").size());
}

TEST(ChatTemplate, TheTemplatesOwnErrorReachesTheClient) {
  const auto chat_template = ChatTemplate::parse("{{ raise_exception('roles must alternate') }}", "t");
  ASSERT_TRUE(chat_template.ok());
  const Json messages{JsonArray{}};
  const auto rendered = chat_template->render({.messages = messages});
  ASSERT_FALSE(rendered.ok());
  EXPECT_EQ(rendered.error().code, ErrorCode::invalid_request);
  EXPECT_EQ(rendered.error().message, "t:1: roles must alternate");
}

}  // namespace
}  // namespace godwit::chat
