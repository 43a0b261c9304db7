#include "server/chat_prompt.h"

#include "base/log.h"
#include "chat/effort.h"
#include "chat/normalise.h"
#include "chat/prompt.h"
#include "chat/template.h"
#include "server/final_message.h"

namespace godwit::server {
namespace {

const char* name_of(chat::MediaPart::Kind kind) {
  switch (kind) {
    case chat::MediaPart::Kind::image:
      return "an image";
    case chat::MediaPart::Kind::video:
      return "a video";
    case chat::MediaPart::Kind::audio:
      return "audio";
  }
  return "media";
}

// `functions`, the form before `tools`, as tools.
Json tools_of_functions(const JsonArray& functions) {
  JsonArray tools;
  for (const Json& function : functions)
    tools.push_back(Json::object({{"type", "function"}, {"function", function}}));
  return tools;
}

Result<std::vector<int32_t>> encode(const ServingModel& model, const chat::Rendered& rendered) {
  auto ids =
      model.tokenizer->encode(rendered.text(), tokenizer::AddedTokens::all(), rendered.literal_ranges());
  if (!ids) ids.error().field = "messages";
  return ids;
}

}  // namespace

Result<ChatPrompt> build_chat_prompt(const ServingModel& model, const Json& body) {
  Fields fields(body, "");
  const JsonArray* messages = fields.array("messages", 100'000);
  const JsonArray* functions = fields.array("functions", 10'000);
  const Ending ending = read_ending(fields);
  if (fields.error()) return *fields.error();
  if (!messages) return make_error(ErrorCode::invalid_request, "messages", "messages is required");
  if (messages->empty())
    return make_error(ErrorCode::invalid_request, "messages", "messages must not be empty");
  const Json from_functions = functions ? tools_of_functions(*functions) : Json();
  const Json* tools = functions && !fields.has("tools") ? &from_functions : fields.any("tools");

  GODWIT_ASSIGN(chat::Conversation conversation, chat::normalise(*body.find("messages"), tools));
  if (!conversation.media.empty()) {
    const chat::MediaPart& part = conversation.media[0];
    return make_error(ErrorCode::invalid_request, part.path,
                      "{} is {}; media input is not available in this build, send text only", part.path,
                      name_of(part.kind));
  }
  if (const auto& warnings = conversation.warnings; !warnings.empty())
    log_warn("{}{}", warnings.front(), and_more(warnings.size() - 1));
  GODWIT_ASSIGN(const chat::Thinking thinking, chat::resolve_thinking(body, model.default_reasoning_effort));

  ChatPrompt prompt;
  prompt.include_reasoning = thinking.include_reasoning;
  if (!conversation.tools.empty()) prompt.tools = std::make_shared<const chat::ToolSet>(conversation.tools);
  const Json normal_messages(std::move(conversation.messages));
  const Json normal_tools(std::move(conversation.tools));
  chat::TemplateInput input{.messages = normal_messages};
  if (!normal_tools.as_array().empty()) input.tools = &normal_tools;
  input.kwargs = &thinking.template_kwargs;
  const auto render = [&]() -> Result<std::vector<int32_t>> {
    GODWIT_ASSIGN(const chat::Rendered rendered, render_turns(*model.chat_template, input, ending));
    return encode(model, rendered);
  };
  GODWIT_ASSIGN(prompt.ids, render());
  if (thinking.off && ending == Ending::new_turn && chat::starts_thinking(prompt.ids, model.control_ids)) {
    // A template that cannot turn thinking off, like the released one: ask for little of it, then close it
    // (api spec §2.10). A template that can is rendered as the client would render it.
    JsonObject low = thinking.template_kwargs;
    low.set("reasoning_effort", "low");
    input.kwargs = &low;
    GODWIT_ASSIGN(prompt.ids, render());
    chat::close_thinking(prompt.ids, model.control_ids);
  }
  if (prompt.ids.empty()) {
    return make_error(ErrorCode::invalid_request, "messages",
                      "the chat template renders these messages to nothing");
  }
  prompt.thinking = chat::starts_thinking(prompt.ids, model.control_ids);
  prompt.thinking_budget = thinking.budget;
  return prompt;
}

}  // namespace godwit::server
