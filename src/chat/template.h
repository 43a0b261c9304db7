// The model's chat template: messages and tools to the prompt text (api spec §2).
#pragma once

#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "chat/jinja/template.h"
#include "tokenizer/added_tokens.h"

namespace godwit::chat {

using jinja::Segment;

// The prompt as runs of template text and of request data (api spec §2.9).
struct Rendered {
  std::vector<Segment> segments;

  std::string text() const;
  // The byte ranges of text() that came with the request: control tokens written there stay literal text
  // (design §12).
  std::vector<tokenizer::LiteralRange> literal_ranges() const;
};

struct TemplateInput {
  const Json& messages;                // array, normalised (api spec §2.10)
  const Json* tools = nullptr;         // array; null: none
  const JsonObject* kwargs = nullptr;  // chat_template_kwargs: more variables, before special tokens
  bool add_generation_prompt = true;
  std::optional<std::time_t> now = std::nullopt;  // of strftime_now; empty: the clock
};

// Immutable; render() may be called from any thread.
class ChatTemplate {
 public:
  // From `override_file` when given; else, as transformers does, from chat_template.jinja beside the config,
  // else from the field chat_template of tokenizer_config.json (a string, or a list of named templates of
  // which "default" counts). Special tokens (bos_token, eos_token …) come from tokenizer_config.json. Errors:
  // data_refused, naming the file.
  static Result<ChatTemplate> load(const std::filesystem::path& model_dir,
                                   const std::optional<std::filesystem::path>& override_file = std::nullopt,
                                   const jinja::Limits& limits = {});

  // From text; `special_tokens` are variables by name, each a string.
  static Result<ChatTemplate> parse(std::string_view source, std::string name, JsonObject special_tokens = {},
                                    const jinja::Limits& limits = {});

  // Errors: invalid_request with "file:line: what was wrong", which for raise_exception is the template's own
  // message.
  Result<Rendered> render(const TemplateInput& input) const;

  const std::string& source() const { return source_; }
  const JsonObject& special_tokens() const { return special_tokens_; }

 private:
  ChatTemplate(std::string source, jinja::Template parsed, JsonObject special_tokens);

  std::string source_;
  jinja::Template template_;
  JsonObject special_tokens_;
};

}  // namespace godwit::chat
