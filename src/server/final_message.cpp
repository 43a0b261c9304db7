#include "server/final_message.h"

#include <algorithm>

namespace godwit::server {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";
constexpr std::string_view kBlank = " \t\r\n\v\f";

bool is_assistant(const Json* message) {
  const Json* role = message == nullptr ? nullptr : message->find("role");
  return role != nullptr && *role == Json("assistant");
}

// Of a normalised message.
std::string text_of(const Json& message) {
  const Json* content = message.find("content");
  if (content == nullptr) return "";
  if (content->is_string()) return content->as_string();
  std::string text;
  for (const Json& part : content->is_array() ? content->as_array() : JsonArray()) {
    const Json* own = part.find("text");
    if (part.is_string()) text += part.as_string();
    if (own != nullptr && own->is_string()) text += own->as_string();
  }
  return text;
}

std::string string_of(const Json* value) {
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

}  // namespace

Ending read_ending(Fields& fields) {
  const bool wanted = fields.boolean("continue_final_message").value_or(false);
  const auto generation = fields.boolean("add_generation_prompt");
  const Json* messages = fields.any("messages");
  const bool last = messages && messages->is_array() && !messages->as_array().empty() &&
                    is_assistant(&messages->as_array().back());
  if (wanted && generation == true)
    fields.refuse("continue_final_message", "and add_generation_prompt exclude each other; send one of them");
  if (wanted && !last)
    fields.refuse("continue_final_message", "needs a last message with the role assistant");
  if (!wanted && generation != false) return Ending::new_turn;
  return last ? Ending::final_message : Ending::nothing;
}

Result<chat::Rendered> render_turns(const chat::ChatTemplate& chat_template, const chat::TemplateInput& input,
                                    Ending ending) {
  chat::TemplateInput turns = input;
  turns.add_generation_prompt = ending == Ending::new_turn;
  if (ending != Ending::final_message) return chat_template.render(turns);

  const JsonArray& messages = input.messages.as_array();
  const std::string path = fmt::format("messages[{}]", messages.size() - 1);
  const Json& message = messages.back();
  if (message.find("tool_calls") != nullptr)
    return make_error(ErrorCode::invalid_request, path + ".tool_calls",
                      "{} has tool calls and cannot be continued; send their results instead", path);
  std::string text = text_of(message);
  const std::string reasoning = string_of(message.find("reasoning_content"));
  const size_t opened = text.find(kOpen);
  const bool open = opened != text.npos && text.find(kClose) == text.npos;
  if (open || (text.empty() && !reasoning.empty())) {
    const Json before(JsonArray(messages.begin(), messages.end() - 1));
    chat::TemplateInput shorter{.messages = before,
                                .tools = input.tools,
                                .kwargs = input.kwargs,
                                .add_generation_prompt = true,
                                .now = input.now};
    GODWIT_ASSIGN(chat::Rendered rendered, chat_template.render(shorter));
    if (!rendered.text().ends_with(kOpen))
      return make_error(
          ErrorCode::invalid_request, path,
          "{} ends inside a think block, but the chat template opens none here; switch thinking "
          "on or send the answer without it",
          path);
    rendered.segments.push_back({reasoning + (open ? text.substr(opened + kOpen.size()) : ""), false});
    return rendered;
  }
  GODWIT_ASSIGN(chat::Rendered rendered, chat_template.render(turns));
  if (const size_t closed = text.rfind(kClose); closed != text.npos) text.erase(0, closed + kClose.size());
  const std::string shown = rendered.text();
  const size_t end = text.find_last_not_of(kBlank);
  const std::string_view stripped(text.data(), end == text.npos ? 0 : end + 1);
  if (shown.ends_with(text)) return rendered;
  if (!shown.ends_with(stripped))
    return make_error(ErrorCode::invalid_request, path,
                      "{} cannot be continued: the chat template does not end with its text", path);
  rendered.segments.push_back({text.substr(stripped.size()), false});
  return rendered;
}

}  // namespace godwit::server
