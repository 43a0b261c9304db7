#include "server/response_items.h"

#include <fmt/format.h>

#include <array>
#include <iterator>

#include "server/sse.h"
#include "server/translate.h"

namespace godwit::server {

std::string_view name_of(ItemStatus status) {
  static constexpr std::array<std::string_view, 3> kNames = {"in_progress", "completed", "incomplete"};
  return kNames[static_cast<size_t>(status)];
}

std::string_view text_event(ItemKind kind) {
  static constexpr std::array<std::string_view, 3> kNames = {"reasoning_text", "output_text",
                                                             "function_call_arguments"};
  return kNames[static_cast<size_t>(kind)];
}

std::string item_id(ItemKind kind, std::string_view seed, size_t index) {
  static constexpr std::array<std::string_view, 3> kPrefixes = {"rs_", "msg_", "fc_"};
  return fmt::format("{}{}{}", kPrefixes[static_cast<size_t>(kind)], seed, index);
}

void append_part(std::string& out, const OutputItem& item) {
  const std::string_view text = item.status == ItemStatus::in_progress ? "" : std::string_view(item.text);
  const bool reasoning = item.kind == ItemKind::reasoning;
  out += reasoning ? R"({"type":"reasoning_text")" : R"({"type":"output_text")";
  append_text_member(out, "text", text);
  out += reasoning ? "}" : R"(,"annotations":[],"logprobs":[]})";
}

void append_item(std::string& out, const OutputItem& item) {
  const bool begun = item.status == ItemStatus::in_progress;
  out += R"({"id":)";
  append_json_string(out, item.id);
  append_text_member(out, "status", name_of(item.status));
  if (item.kind == ItemKind::function_call) {
    out += R"(,"type":"function_call")";
    append_text_member(out, "call_id", item.call_id);
    append_text_member(out, "name", item.name);
    append_text_member(out, "arguments", begun ? "" : std::string_view(item.text));
    out += "}";
    return;
  }
  out += item.kind == ItemKind::reasoning ? R"(,"type":"reasoning","summary":[],"content":[)"
                                          : R"(,"type":"message","role":"assistant","content":[)";
  if (!begun) append_part(out, item);
  out += "]}";
}

void append_responses_usage(std::string& out, const Usage& u) {
  fmt::format_to(std::back_inserter(out),
                 R"({{"input_tokens":{},"input_tokens_details":{{"cached_tokens":{}}},"output_tokens":{},)"
                 R"("output_tokens_details":{{"reasoning_tokens":{}}},"total_tokens":{}}})",
                 u.prompt_tokens, u.cached_tokens, u.completion_tokens, u.reasoning_tokens,
                 u.prompt_tokens + u.completion_tokens);
}

std::string chat_message_of(const std::vector<OutputItem>& items, bool promoted) {
  std::string content, reasoning;
  JsonArray calls;
  for (const OutputItem& item : items) {
    if (item.kind == ItemKind::reasoning && !promoted) reasoning += item.text;
    if (item.kind == ItemKind::message) content += item.text;
    if (item.kind == ItemKind::function_call) calls.push_back(chat_call(item.call_id, item.name, item.text));
  }
  JsonObject message;
  message.set("role", "assistant");
  message.set("content", std::move(content));
  if (!reasoning.empty()) message.set("reasoning_content", std::move(reasoning));
  if (!calls.empty()) message.set("tool_calls", std::move(calls));
  return dump_json(Json(std::move(message)), JsonStyle::compact());
}

}  // namespace godwit::server
