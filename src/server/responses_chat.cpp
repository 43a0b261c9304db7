#include "server/responses_chat.h"

#include <fmt/format.h>

#include "base/log.h"
#include "server/fields.h"
#include "server/translate.h"

namespace godwit::server {
namespace {

constexpr size_t kMaxTools = 10'000;
constexpr size_t kMaxMetadata = 16;

// Tools that OpenAI runs on its servers, and custom ones, cannot be called here. Clients send them beside
// their functions whatever the server is, so they are left out, with a warning (api spec §4.10).
Result<JsonArray> read_tools(const JsonArray& tools) {
  JsonArray out;
  size_t left_out = 0;
  std::string first_left_out;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string path = fmt::format("tools[{}]", i);
    GODWIT_TRY(need_object(tools[i], path));
    const auto type = need_string(tools[i], "type", path);
    if (!type) return type.error();
    if (*type != "function") {
      if (left_out++ == 0) first_left_out = fmt::format("{} is of the type {}", path, describe(Json(*type)));
      continue;
    }
    GODWIT_ASSIGN(Json tool, chat_tool(tools[i], "parameters", path));
    out.push_back(std::move(tool));
  }
  if (left_out > 0)
    log_warn("{}, which is not available here; it was left out{}", first_left_out, and_more(left_out - 1));
  return out;
}

// Words are the chat form's own; {type: function, name} has its name one level up.
Json read_tool_choice(const Json& choice) {
  const Json* type = choice.find("type");
  const Json* name = choice.find("name");
  if (!type || !(*type == Json("function")) || !name) return choice;
  return Json::object({{"type", "function"}, {"function", Json::object({{"name", *name}})}});
}

Result<void> read_format(const Json& text, JsonObject& out) {
  GODWIT_TRY(need_object(text, "text"));
  const Json* format = member_of(text, "format");
  if (!format) return {};
  GODWIT_TRY(need_object(*format, "text.format"));
  GODWIT_ASSIGN(const std::string type, need_string(*format, "type", "text.format"));
  JsonObject chat;
  chat.set("type", type);
  if (type == "json_schema") {
    JsonObject schema;
    pass_members(*format, schema, {"name", "description", "schema", "strict"});
    chat.set("json_schema", std::move(schema));
  }
  out.set("response_format", std::move(chat));
  return {};
}

// What this server has no way to do, and what would change the answer if it were ignored.
void refuse_unavailable(Fields& fields) {
  if (fields.boolean("background").value_or(false))
    fields.refuse("background", "must be false: answers are only given while the client waits for them");
  for (const std::string_view key : {"conversation", "prompt"}) {
    if (fields.has(key)) fields.refuse(key, "is not supported: conversations and prompts are not kept here");
  }
  if (fields.integer("top_logprobs", 0, 20).value_or(0) > 0)
    fields.refuse("top_logprobs", "must be 0: logprobs are a feature of /v1/chat/completions");
  if (const std::string* truncation = fields.string("truncation");
      truncation && *truncation != "disabled" && *truncation != "auto") {
    fields.refuse("truncation", "must be auto or disabled, got " + describe(Json(*truncation)));
  }
  fields.boolean("store");
  const Json* metadata = fields.object("metadata");
  if (!metadata) return;
  if (metadata->as_object().size() > kMaxMetadata) {
    fields.refuse("metadata", fmt::format("has {} members, at most {} are allowed",
                                          metadata->as_object().size(), kMaxMetadata));
  }
  for (const auto& [key, value] : metadata->as_object()) {
    if (!value.is_string()) fields.refuse("metadata." + key, "must be a string, got " + describe(value));
  }
}

}  // namespace

Result<ResponsesChat> chat_of_responses(const Json& body, JsonArray history) {
  Fields fields(body, "");
  const JsonArray* tools = fields.array("tools", kMaxTools);
  const std::string* instructions = fields.string("instructions");
  const auto max_tokens = fields.integer("max_output_tokens", 1, int64_t{1} << 40);
  refuse_unavailable(fields);
  if (fields.error()) return *fields.error();
  const Json* input = fields.any("input");
  if (!input) return refusal("input", "is required");

  ResponsesChat out;
  GODWIT_ASSIGN(out.turns, read_input(*input));
  if (out.turns.empty() && history.empty()) return refusal("input", "must not be empty");
  JsonArray messages;
  messages.reserve(history.size() + out.turns.size() + 1);
  if (instructions) messages.push_back(Json::object({{"role", "system"}, {"content", *instructions}}));
  for (Json& message : history) messages.push_back(std::move(message));
  messages.insert(messages.end(), out.turns.begin(), out.turns.end());

  JsonObject chat;
  chat.set("messages", std::move(messages));
  bool left_out_all = false;
  if (tools) {
    GODWIT_ASSIGN(JsonArray functions, read_tools(*tools));
    left_out_all = functions.empty() && !tools->empty();
    if (!functions.empty()) chat.set("tools", std::move(functions));
  }
  const Json* choice = fields.any("tool_choice");
  if (choice && !(left_out_all && *choice == Json("auto")))
    chat.set("tool_choice", read_tool_choice(*choice));
  if (const Json* text = fields.any("text")) GODWIT_TRY(read_format(*text, chat));
  if (max_tokens) chat.set("max_completion_tokens", *max_tokens);
  if (const Json* reasoning = fields.any("reasoning")) {
    GODWIT_TRY(need_object(*reasoning, "reasoning"));
    JsonObject normal;
    pass_members(*reasoning, normal, {"effort"});
    chat.set("reasoning", std::move(normal));
  }
  pass_members(body, chat,
               {"model", "temperature", "top_p", "parallel_tool_calls", "stream", "top_k", "min_p", "seed",
                "priority", "timeout_ms", "cache_salt", "chat_template_kwargs"});
  out.chat = Json(std::move(chat));
  return out;
}

Error responses_error(Error error) {
  return with_names(std::move(error), {{"max_completion_tokens", "max_output_tokens"},
                                       {"response_format.json_schema", "text.format"},
                                       {"response_format", "text.format"},
                                       {"messages", "input"}});
}

}  // namespace godwit::server
