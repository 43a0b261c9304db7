// Input items of /v1/responses as chat messages.
#include <fmt/format.h>

#include "server/fields.h"
#include "server/responses_chat.h"
#include "server/translate.h"

namespace godwit::server {
namespace {

constexpr size_t kMaxItems = 100'000;

// Text of a message or of a function's output: a string, or parts.
Result<Json> read_parts(const Json* content, const std::string& path) {
  if (!content || content->is_null()) return Json("");
  if (content->is_string()) return *content;
  if (!content->is_array())
    return refusal(path, "must be a string or a list of parts, got " + describe(*content));
  JsonArray parts;
  for (size_t i = 0; i < content->as_array().size(); ++i) {
    const Json& part = content->as_array()[i];
    const std::string part_path = fmt::format("{}[{}]", path, i);
    GODWIT_TRY(need_object(part, part_path));
    GODWIT_ASSIGN(const std::string type, need_string(part, "type", part_path));
    if (type == "input_image" || type == "input_file" || type == "input_audio") {
      return refusal(
          part_path,
          fmt::format("is an {}; media input is not available in this build, send text only", type));
    }
    if (type != "input_text" && type != "output_text" && type != "text" && type != "refusal") {
      return refusal(part_path + ".type", fmt::format("is {}; known here: input_text, output_text, refusal",
                                                      describe(Json(type))));
    }
    GODWIT_ASSIGN(std::string text, need_string(part, type == "refusal" ? "refusal" : "text", part_path));
    parts.push_back(Json::object({{"type", "text"}, {"text", std::move(text)}}));
  }
  return parts.empty() ? Json("") : Json(std::move(parts));
}

class ItemReader {
 public:
  Result<void> read(const Json& item, const std::string& path) {
    GODWIT_TRY(need_object(item, path));
    const Json* named = member_of(item, "type");
    if (named && !named->is_string())
      return refusal(path + ".type", "must be a string, got " + describe(*named));
    const std::string type = named ? named->as_string() : "message";
    if (type == "message") return read_message(item, path);
    if (type == "reasoning") return read_reasoning(item, path);
    if (type == "function_call") return read_call(item, "arguments", path);
    if (type == "custom_tool_call") return read_call(item, "input", path);
    if (type == "function_call_output" || type == "custom_tool_call_output") return read_output(item, path);
    if (type == "item_reference")
      return refusal(path + ".type",
                     "is \"item_reference\", which cannot be resolved here; send the item itself");
    return refusal(path + ".type",
                   fmt::format("is {}; known here: message, reasoning, function_call, function_call_output, "
                               "custom_tool_call, custom_tool_call_output",
                               describe(Json(type))));
  }

  JsonArray finish() {
    flush();
    return std::move(out_);
  }

 private:
  Result<void> read_message(const Json& item, const std::string& path) {
    GODWIT_ASSIGN(const std::string role, need_string(item, "role", path));
    if (role != "user" && role != "assistant" && role != "system" && role != "developer") {
      return refusal(path + ".role",
                     "must be user, assistant, system or developer, got " + describe(Json(role)));
    }
    GODWIT_ASSIGN(Json content, read_parts(item.find("content"), path + ".content"));
    if (role == "assistant") {
      if (content_ || !calls_.empty()) flush();
      content_ = std::move(content);
      return {};
    }
    flush();
    out_.push_back(Json::object({{"role", role}, {"content", std::move(content)}}));
    return {};
  }

  // content[].text is what the model thought, summary[].text stands in for it.
  Result<void> read_reasoning(const Json& item, const std::string& path) {
    if (content_ || !calls_.empty()) flush();
    for (const std::string_view key : {"content", "summary"}) {
      const Json* parts = member_of(item, key);
      if (!parts) continue;
      const std::string parts_path = fmt::format("{}.{}", path, key);
      if (!parts->is_array()) return refusal(parts_path, "must be a list, got " + describe(*parts));
      for (size_t i = 0; i < parts->as_array().size(); ++i) {
        const std::string part_path = fmt::format("{}[{}]", parts_path, i);
        GODWIT_TRY(need_object(parts->as_array()[i], part_path));
        GODWIT_ASSIGN(const std::string text, need_string(parts->as_array()[i], "text", part_path));
        reasoning_ += text;
      }
      if (!reasoning_.empty()) break;
    }
    return {};
  }

  Result<void> read_call(const Json& item, std::string_view key, const std::string& path) {
    GODWIT_ASSIGN(std::string id, need_string(item, "call_id", path));
    GODWIT_ASSIGN(std::string name, need_string(item, "name", path));
    const Json* arguments = member_of(item, key);
    Json value = arguments ? *arguments : Json(JsonObject());
    if (key == "input") value = Json::object({{"input", std::move(value)}});
    calls_.push_back(chat_call(std::move(id), std::move(name), std::move(value)));
    return {};
  }

  Result<void> read_output(const Json& item, const std::string& path) {
    flush();
    GODWIT_ASSIGN(std::string id, need_string(item, "call_id", path));
    GODWIT_ASSIGN(Json output, read_parts(item.find("output"), path + ".output"));
    out_.push_back(
        Json::object({{"role", "tool"}, {"tool_call_id", std::move(id)}, {"content", std::move(output)}}));
    return {};
  }

  void flush() {
    if (content_ || !reasoning_.empty() || !calls_.empty()) {
      JsonObject message;
      message.set("role", "assistant");
      message.set("content", content_ ? std::move(*content_) : Json(""));
      if (!reasoning_.empty()) message.set("reasoning_content", std::move(reasoning_));
      if (!calls_.empty()) message.set("tool_calls", std::move(calls_));
      out_.push_back(std::move(message));
    }
    content_.reset();
    reasoning_.clear();
    calls_.clear();
  }

  JsonArray out_;
  std::optional<Json> content_;  // of the assistant's message that is being put together
  std::string reasoning_;
  JsonArray calls_;
};

}  // namespace

Result<JsonArray> read_input(const Json& input) {
  if (input.is_string()) return JsonArray{Json::object({{"role", "user"}, {"content", input}})};
  if (!input.is_array())
    return refusal("input", "must be a string or a list of items, got " + describe(input));
  const JsonArray& items = input.as_array();
  if (items.size() > kMaxItems) {
    return refusal("input", fmt::format("has {} items, at most {} are allowed", items.size(), kMaxItems));
  }
  ItemReader reader;
  for (size_t i = 0; i < items.size(); ++i) GODWIT_TRY(reader.read(items[i], fmt::format("input[{}]", i)));
  return reader.finish();
}

}  // namespace godwit::server
