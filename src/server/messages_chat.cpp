#include "server/messages_chat.h"

#include <fmt/format.h>

#include "base/log.h"
#include "server/fields.h"
#include "server/translate.h"

namespace godwit::server {
namespace {

constexpr size_t kMaxTools = 10'000;
constexpr size_t kMaxMessages = 100'000;

Result<JsonArray> read_tools(const JsonArray& tools) {
  JsonArray out;
  size_t left_out = 0;
  std::string first_left_out;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string path = fmt::format("tools[{}]", i);
    GODWIT_TRY(need_object(tools[i], path));
    const Json* type = member_of(tools[i], "type");
    if (type && !(*type == Json("custom")) && !member_of(tools[i], "input_schema")) {
      if (left_out++ == 0) first_left_out = fmt::format("{} is of the type {}", path, describe(*type));
      continue;
    }
    if (!member_of(tools[i], "input_schema")) return refusal(path + ".input_schema", "is required");
    GODWIT_ASSIGN(Json tool, chat_tool(tools[i], "input_schema", path));
    out.push_back(std::move(tool));
  }
  if (left_out > 0)
    log_warn("{}, which runs on Anthropic's servers; it was left out{}", first_left_out,
             and_more(left_out - 1));
  return out;
}

Result<void> read_tool_choice(const Json& choice, JsonObject& out) {
  GODWIT_TRY(need_object(choice, "tool_choice"));
  GODWIT_ASSIGN(const std::string type, need_string(choice, "type", "tool_choice"));
  if (type == "auto" || type == "none") {
    out.set("tool_choice", type);
  } else if (type == "any") {
    out.set("tool_choice", "required");
  } else if (type == "tool") {
    GODWIT_ASSIGN(std::string name, need_string(choice, "name", "tool_choice"));
    out.set("tool_choice",
            Json::object({{"type", "function"}, {"function", Json::object({{"name", std::move(name)}})}}));
  } else {
    return refusal("tool_choice.type", "must be auto, any, tool or none, got " + describe(Json(type)));
  }
  Fields inner(choice, "tool_choice");
  const auto serial = inner.boolean("disable_parallel_tool_use");
  if (inner.error()) return *inner.error();
  if (serial) out.set("parallel_tool_calls", !*serial);
  return {};
}

// A request without `thinking` is from a client that does not expect thinking blocks: the model thinks, the
// answer does not show it (design §12). Types of tomorrow must not fail a request.
Result<void> read_thinking(const Json* thinking, JsonObject& out) {
  if (!thinking) {
    out.set("include_reasoning", false);
    return {};
  }
  GODWIT_TRY(need_object(*thinking, "thinking"));
  GODWIT_ASSIGN(const std::string type, need_string(*thinking, "type", "thinking"));
  JsonObject normal;
  normal.set("type", type);
  Fields inner(*thinking, "thinking");
  const int64_t budget = inner.integer("budget_tokens", 0, int64_t{1} << 40).value_or(0);
  if (inner.error()) return *inner.error();
  if (budget > 0 && type != "disabled") normal.set("budget_tokens", budget);  // 0: no limit
  pass_members(*thinking, normal, {"clear_thinking"});
  out.set("thinking", std::move(normal));
  return {};
}

Result<void> read_output_config(const Json& config, JsonObject& out) {
  GODWIT_TRY(need_object(config, "output_config"));
  JsonObject effort;
  pass_members(config, effort, {"effort"});
  if (!effort.empty()) out.set("output_config", std::move(effort));
  const Json* format = member_of(config, "format");
  if (!format) return {};
  GODWIT_TRY(need_object(*format, "output_config.format"));
  GODWIT_ASSIGN(const std::string type, need_string(*format, "type", "output_config.format"));
  JsonObject schema;
  schema.set("name", "output");
  pass_members(*format, schema, {"schema"});
  out.set("response_format", Json::object({{"type", type}, {"json_schema", std::move(schema)}}));
  return {};
}

}  // namespace

Result<Json> chat_of_messages(const Json& body) {
  Fields fields(body, "");
  const JsonArray* messages = fields.array("messages", kMaxMessages);
  const JsonArray* tools = fields.array("tools", kMaxTools);
  if (fields.error()) return *fields.error();
  if (!messages) return refusal("messages", "is required");
  if (messages->empty()) return refusal("messages", "must not be empty");

  JsonArray chat;
  if (const Json* system = fields.any("system")) {
    GODWIT_ASSIGN(Json content, read_system(*system, "system"));
    chat.push_back(Json::object({{"role", "system"}, {"content", std::move(content)}}));
  }
  for (size_t i = 0; i < messages->size(); ++i)
    GODWIT_TRY(read_message((*messages)[i], fmt::format("messages[{}]", i), chat));

  JsonObject out;
  if (!chat.empty() && *chat.back().find("role") == Json("assistant") && !chat.back().find("tool_calls"))
    out.set("continue_final_message", true);  // a prefill
  out.set("messages", std::move(chat));
  if (tools) {
    GODWIT_ASSIGN(JsonArray functions, read_tools(*tools));
    out.set("tools", std::move(functions));
  }
  if (const Json* choice = fields.any("tool_choice")) GODWIT_TRY(read_tool_choice(*choice, out));
  GODWIT_TRY(read_thinking(fields.any("thinking"), out));
  if (const Json* config = fields.any("output_config")) GODWIT_TRY(read_output_config(*config, out));
  if (const Json* stop = fields.any("stop_sequences")) out.set("stop", *stop);
  pass_members(body, out,
               {"model", "max_tokens", "temperature", "top_p", "top_k", "stream", "min_p", "seed", "priority",
                "timeout_ms", "cache_salt", "chat_template_kwargs", "reasoning_effort"});
  return Json(std::move(out));
}

Error messages_error(Error error) {
  return with_names(std::move(error), {{"stop", "stop_sequences"},
                                       {"parallel_tool_calls", "tool_choice.disable_parallel_tool_use"},
                                       {"response_format.json_schema", "output_config.format"},
                                       {"response_format", "output_config.format"},
                                       {"continue_final_message", "messages"}});
}

}  // namespace godwit::server
