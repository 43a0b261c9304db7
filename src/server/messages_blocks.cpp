// Content blocks of /v1/messages. The chat form has no blocks: text stays content, thinking becomes
// reasoning_content, tool_use a call, and every tool_result a message of its own.
#include <fmt/format.h>

#include "server/fields.h"
#include "server/messages_chat.h"
#include "server/translate.h"

namespace godwit::server {
namespace {

constexpr std::string_view kBilling = "x-anthropic-billing-header";

Json text_part(std::string text) {
  return Json::object({{"type", "text"}, {"text", std::move(text)}});
}

Error no_image(const std::string& path) {
  return refusal(path, "is an image; media input is not available in this build, send text only");
}

Error unknown_block(const std::string& path, const std::string& type, std::string_view known) {
  return refusal(path + ".type", fmt::format("is {}; known here: {}", describe(Json(type)), known));
}

// {source: {type: "text", data}}: a text file. Others would need a reader for their format.
Result<std::string> document_text(const Json& block, const std::string& path) {
  const Json* source = member_of(block, "source");
  if (!source) return refusal(path + ".source", "is required");
  GODWIT_TRY(need_object(*source, path + ".source"));
  GODWIT_ASSIGN(const std::string type, need_string(*source, "type", path + ".source"));
  if (type != "text")
    return refusal(path + ".source.type", "must be \"text\": only plain text documents can be read here");
  return need_string(*source, "data", path + ".source");
}

// Text of a result, and tools it loads; both as outputs of one result (api spec §2.7, §4.11).
Result<Json> result_content(const Json& block, const std::string& id, const std::string& path) {
  const Json* content = member_of(block, "content");
  if (!content) return Json("");
  if (content->is_string()) return *content;
  if (!content->is_array())
    return refusal(path + ".content", "must be a string or a list of blocks, got " + describe(*content));
  JsonArray texts, references;
  for (size_t i = 0; i < content->as_array().size(); ++i) {
    const Json& part = content->as_array()[i];
    const std::string part_path = fmt::format("{}.content[{}]", path, i);
    GODWIT_TRY(need_object(part, part_path));
    GODWIT_ASSIGN(const std::string type, need_string(part, "type", part_path));
    if (type == "text") {
      GODWIT_ASSIGN(std::string text, need_string(part, "text", part_path));
      texts.push_back(text_part(std::move(text)));
    } else if (type == "document") {
      GODWIT_ASSIGN(std::string text, document_text(part, part_path));
      texts.push_back(text_part(std::move(text)));
    } else if (type == "tool_reference") {
      GODWIT_ASSIGN(std::string name,
                    need_string(part, part.find("tool_name") ? "tool_name" : "name", part_path));
      references.push_back(Json::object({{"type", "tool_reference"}, {"name", std::move(name)}}));
    } else if (type == "image") {
      return no_image(part_path);
    } else {
      return unknown_block(part_path, type, "text, document, tool_reference");
    }
  }
  if (references.empty()) return Json(std::move(texts));
  if (texts.empty()) return Json(std::move(references));
  const auto output = [&](JsonArray parts) {
    return Json::object({{"tool_call_id", id}, {"output", std::move(parts)}});
  };
  return Json(JsonArray{output(std::move(texts)), output(std::move(references))});
}

// Reads one message; blocks of a kind gather in `parts` until another kind makes a message of them.
class BlockReader {
 public:
  BlockReader(std::string role, JsonArray& out) : role_(std::move(role)), out_(out) {}

  Result<void> read(const Json& block, const std::string& path) {
    if (block.is_string()) {
      parts_.push_back(text_part(block.as_string()));
      return {};
    }
    GODWIT_TRY(need_object(block, path));
    GODWIT_ASSIGN(const std::string type, need_string(block, "type", path));
    if (type == "text") {
      GODWIT_ASSIGN(std::string text, need_string(block, "text", path));
      parts_.push_back(text_part(std::move(text)));
      return {};
    }
    return role_ == "assistant" ? read_assistant(block, type, path) : read_user(block, type, path);
  }

  void finish() {
    const bool wanted = !parts_.empty() || !calls_.empty() || !reasoning_.empty() || !emitted_;
    if (!wanted) return;
    JsonObject message;
    message.set("role", role_);
    message.set("content", parts_.empty() ? Json("") : Json(std::move(parts_)));
    if (thought_) message.set("reasoning_content", std::move(reasoning_));
    if (!calls_.empty()) message.set("tool_calls", std::move(calls_));
    out_.push_back(std::move(message));
    parts_.clear();
  }

 private:
  Result<void> read_assistant(const Json& block, const std::string& type, const std::string& path) {
    if (type == "thinking") {
      GODWIT_ASSIGN(const std::string text, need_string(block, "thinking", path));
      reasoning_ += text;
      thought_ = true;
    } else if (type == "tool_use") {
      GODWIT_ASSIGN(std::string id, need_string(block, "id", path));
      GODWIT_ASSIGN(std::string name, need_string(block, "name", path));
      const Json* input = member_of(block, "input");
      calls_.push_back(chat_call(std::move(id), std::move(name), input ? *input : Json(JsonObject())));
    } else if (type != "redacted_thinking") {  // encrypted: nothing a model could read
      return unknown_block(path, type, "text, thinking, redacted_thinking, tool_use");
    }
    return {};
  }

  Result<void> read_user(const Json& block, const std::string& type, const std::string& path) {
    if (type == "image") return no_image(path);
    if (type == "document") {
      GODWIT_ASSIGN(std::string text, document_text(block, path));
      parts_.push_back(text_part(std::move(text)));
      return {};
    }
    if (type != "tool_result" || role_ != "user")
      return unknown_block(path, type, role_ == "user" ? "text, image, document, tool_result" : "text");
    GODWIT_ASSIGN(std::string id, need_string(block, "tool_use_id", path));
    GODWIT_ASSIGN(Json content, result_content(block, id, path));
    if (!parts_.empty()) finish();
    emitted_ = true;
    out_.push_back(
        Json::object({{"role", "tool"}, {"tool_call_id", std::move(id)}, {"content", std::move(content)}}));
    return {};
  }

  std::string role_;
  JsonArray& out_;
  JsonArray parts_, calls_;
  std::string reasoning_;
  bool thought_ = false;
  bool emitted_ = false;
};

}  // namespace

Result<void> read_message(const Json& message, const std::string& path, JsonArray& out) {
  GODWIT_TRY(need_object(message, path));
  GODWIT_ASSIGN(const std::string role, need_string(message, "role", path));
  if (role != "user" && role != "assistant" && role != "system")
    return refusal(path + ".role", "must be user, assistant or system, got " + describe(Json(role)));
  const Json* content = member_of(message, "content");
  if (!content) return refusal(path + ".content", "is required");
  BlockReader reader(role, out);
  if (content->is_string()) {
    GODWIT_TRY(reader.read(*content, path + ".content"));
  } else if (content->is_array()) {
    for (size_t i = 0; i < content->as_array().size(); ++i)
      GODWIT_TRY(reader.read(content->as_array()[i], fmt::format("{}.content[{}]", path, i)));
  } else {
    return refusal(path + ".content", "must be a string or a list of blocks, got " + describe(*content));
  }
  reader.finish();
  return {};
}

Result<Json> read_system(const Json& system, const std::string& path) {
  if (system.is_string()) return system;
  if (!system.is_array())
    return refusal(path, "must be a string or a list of text blocks, got " + describe(system));
  JsonArray parts;
  for (size_t i = 0; i < system.as_array().size(); ++i) {
    const Json& block = system.as_array()[i];
    const std::string block_path = fmt::format("{}[{}]", path, i);
    GODWIT_TRY(need_object(block, block_path));
    GODWIT_ASSIGN(const std::string type, need_string(block, "type", block_path));
    if (type != "text") return unknown_block(block_path, type, "text");
    GODWIT_ASSIGN(std::string text, need_string(block, "text", block_path));
    if (!text.starts_with(kBilling)) parts.push_back(text_part(std::move(text)));
  }
  return parts.empty() ? Json("") : Json(std::move(parts));
}

}  // namespace godwit::server
