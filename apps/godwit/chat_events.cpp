#include "chat_events.h"

namespace godwit {
namespace {

constexpr size_t kMaxCalls = 256;  // in one answer; a larger index is a broken server

std::string_view text_of(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value != nullptr && value->is_string() ? std::string_view(value->as_string()) : std::string_view();
}

int64_t count_of(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value != nullptr && value->is_integer() ? value->as_integer() : 0;
}

}  // namespace

Json ChatAnswer::as_message() const {
  JsonObject message;
  message.set("role", "assistant");
  message.set("content", content);
  if (!reasoning.empty()) message.set("reasoning_content", reasoning);
  if (!tool_calls.empty()) {
    JsonArray calls;
    for (const ToolCall& call : tool_calls) {
      calls.push_back(
          Json::object({{"id", call.id},
                        {"type", "function"},
                        {"function", Json::object({{"name", call.name}, {"arguments", call.arguments}})}}));
    }
    message.set("tool_calls", std::move(calls));
  }
  return message;
}

void ChatEvents::feed(std::string_view bytes) {
  partial_ += bytes;
  size_t from = 0;
  for (size_t end; (end = partial_.find('\n', from)) != std::string::npos; from = end + 1) {
    std::string_view text = std::string_view(partial_).substr(from, end - from);
    if (text.ends_with('\r')) text.remove_suffix(1);
    line(text);
  }
  partial_.erase(0, from);
}

void ChatEvents::line(std::string_view text) {
  if (!text.starts_with("data:")) return;  // comments, event names, blank lines
  text.remove_prefix(5);
  if (text.starts_with(' ')) text.remove_prefix(1);
  if (text == "[DONE]") {
    answer_.done = true;
    return;
  }
  auto json = parse_json(text);
  if (json.ok()) {
    chunk(*json);
  } else {
    answer_.error = "the server sent an event that is no JSON: " + json.error().message;
  }
}

void ChatEvents::chunk(const Json& json) {
  if (const Json* error = json.find("error")) {
    answer_.error = text_of(*error, "message");
    if (answer_.error.empty()) answer_.error = dump_json(*error);
  }
  if (const Json* usage = json.find("usage")) {
    answer_.prompt_tokens = count_of(*usage, "prompt_tokens");
    answer_.completion_tokens = count_of(*usage, "completion_tokens");
    if (const Json* details = usage->find("prompt_tokens_details")) {
      answer_.cached_tokens = count_of(*details, "cached_tokens");
    }
  }
  const Json* choices = json.find("choices");
  if (choices == nullptr || !choices->is_array() || choices->as_array().empty()) return;
  const Json& choice = choices->as_array()[0];
  if (const Json* changes = choice.find("delta")) delta(*changes);
  if (const std::string_view reason = text_of(choice, "finish_reason"); !reason.empty()) {
    answer_.finish_reason = reason;
  }
}

void ChatEvents::delta(const Json& json) {
  // Both names carry the same text; some servers send only one.
  std::string_view reasoning = text_of(json, "reasoning_content");
  if (reasoning.empty()) reasoning = text_of(json, "reasoning");
  if (!reasoning.empty()) {
    answer_.reasoning += reasoning;
    handlers_.on_reasoning(reasoning);
  }
  if (const std::string_view content = text_of(json, "content"); !content.empty()) {
    answer_.content += content;
    handlers_.on_content(content);
  }
  const Json* calls = json.find("tool_calls");
  if (calls == nullptr || !calls->is_array()) return;
  for (const Json& call : calls->as_array()) {
    const auto index = static_cast<size_t>(count_of(call, "index"));
    if (index >= kMaxCalls) continue;
    if (answer_.tool_calls.size() <= index) answer_.tool_calls.resize(index + 1);
    ToolCall& target = answer_.tool_calls[index];
    target.id += text_of(call, "id");
    if (const Json* function = call.find("function")) {
      target.name += text_of(*function, "name");
      target.arguments += text_of(*function, "arguments");
    }
  }
}

std::string error_text(std::string_view body) {
  if (auto json = parse_json(body); json.ok()) {
    if (const Json* error = json->find("error")) {
      if (const std::string_view message = text_of(*error, "message"); !message.empty())
        return std::string(message);
    }
  }
  return std::string(body.substr(0, 500));
}

}  // namespace godwit
