// Content parts: text in its dialects, thinking, media, tool results.
#include <optional>

#include "chat/normalise_parts.h"

namespace godwit::chat {
namespace {

std::optional<MediaPart::Kind> media_kind(std::string_view type) {
  static constexpr std::pair<std::string_view, MediaPart::Kind> kTypes[] = {
      {"image", MediaPart::Kind::image},       {"image_url", MediaPart::Kind::image},
      {"input_image", MediaPart::Kind::image}, {"video", MediaPart::Kind::video},
      {"video_url", MediaPart::Kind::video},   {"audio", MediaPart::Kind::audio},
      {"audio_url", MediaPart::Kind::audio},   {"input_audio", MediaPart::Kind::audio}};
  for (const auto& [name, kind] : kTypes) {
    if (name == type) return kind;
  }
  return std::nullopt;
}

// The name a template knows the part by: Responses spells some differently.
std::string_view template_type(std::string_view type) {
  if (type == "input_text" || type == "output_text" || type == "refusal") return "text";
  if (type == "input_image") return "image_url";
  return type;
}

// The text of a part, by the first of `keys` that is there.
Result<std::string> part_text(const Json& part, std::initializer_list<std::string_view> keys,
                              const std::string& path) {
  for (std::string_view key : keys) {
    const Json* text = part.find(key);
    if (text == nullptr || text->is_null()) continue;
    if (!text->is_string())
      return field_error(path + "." + std::string(key), "must be a string, not {}", brief(*text));
    return text->as_string();
  }
  return field_error(path + "." + std::string(*keys.begin()), "is missing");
}

struct PartReader {
  std::string_view role;
  Conversation& conversation;
  std::string& reasoning;
  JsonArray out;

  Result<void> read(const Json& part, const std::string& path) {
    if (part.is_string()) {
      out.push_back(part);
      return {};
    }
    if (!part.is_object()) return field_error(path, "must be a string or an object, not {}", brief(part));
    const Json* output = part.find("output");
    if (role == "tool" && output != nullptr) return tool_output(part, *output, path);
    const Json* type = part.find("type");
    if (type == nullptr) return field_error(path + ".type", "is missing");
    if (!type->is_string()) return field_error(path + ".type", "must be a string, not {}", brief(*type));
    return typed(part, type->as_string(), path);
  }

  Result<void> typed(const Json& part, const std::string& type, const std::string& path) {
    std::string_view known = template_type(type);
    if (known == "text") {
      GODWIT_ASSIGN(std::string text, type == "refusal" ? part_text(part, {"refusal", "text"}, path)
                                                        : part_text(part, {"text"}, path));
      out.push_back(Json::object({{"type", "text"}, {"text", std::move(text)}}));
      return {};
    }
    if (role == "assistant" && (type == "thinking" || type == "reasoning")) {
      GODWIT_ASSIGN(std::string text, part_text(part, {type, "text"}, path));
      reasoning += text;
      return {};
    }
    if (role == "assistant" && type == "redacted_thinking")
      return {};  // encrypted: nothing a model could read
    if (role == "tool" && type == "tool_reference") return tool_reference(part, path);
    if (auto kind = media_kind(type)) {
      conversation.media.push_back({*kind, path});
      Json copy = part;
      copy.as_object().set("type", known);
      out.push_back(std::move(copy));
      return {};
    }
    return field_error(path + ".type", "is \"{}\", which a message of role {} cannot carry",
                       type.substr(0, 80), role);
  }

  // Templates load a deferred tool by its name and fail when no tools are declared.
  Result<void> tool_reference(const Json& part, const std::string& path) {
    GODWIT_ASSIGN(std::string name, part_text(part, {"name", "tool_name"}, path));
    if (conversation.tools.empty()) {
      conversation.warnings.push_back(
          path + " refers to a tool, but the request declares none; its name became text");
      out.push_back(Json::object({{"type", "text"}, {"text", std::move(name)}}));
    } else {
      out.push_back(Json::object({{"type", "tool_reference"}, {"name", std::move(name)}}));
    }
    return {};
  }

  // {output: …, tool_call_id: …}: several results in one message (api spec §2.7).
  Result<void> tool_output(const Json& part, const Json& output, const std::string& path) {
    JsonObject element;
    for (std::string_view key : {"tool_call_id", "id"}) {
      if (const Json* id = part.find(key); id != nullptr && id->is_string()) element.set(key, *id);
    }
    std::string none;
    const std::string output_path = path + ".output";
    if (output.is_array()) {
      PartReader inner{role, conversation, none, {}};
      for (size_t i = 0; i < output.as_array().size(); ++i) {
        const Json& item = output.as_array()[i];
        // One level only: an output inside an output means nothing and must not nest without bound.
        if (item.find("output") != nullptr)
          return field_error(output_path, "must not contain further outputs");
        GODWIT_TRY(inner.read(item, fmt::format("{}[{}]", output_path, i)));
      }
      element.set("output", std::move(inner.out));
    } else {
      element.set("output", output.is_string() ? output
                            : output.is_null() ? Json("")
                                               : Json(dump_json(output)));
    }
    out.push_back(std::move(element));
    return {};
  }
};

}  // namespace

Result<Json> normalise_content(const Json* content, std::string_view role, const std::string& path,
                               Conversation& conversation, std::string& reasoning) {
  if (content == nullptr || content->is_null()) return Json("");
  if (content->is_string()) return *content;
  if (content->is_array()) {
    PartReader reader{role, conversation, reasoning, {}};
    for (size_t i = 0; i < content->as_array().size(); ++i) {
      GODWIT_TRY(reader.read(content->as_array()[i], fmt::format("{}[{}]", path, i)));
    }
    if (reader.out.empty()) return Json("");
    return Json(std::move(reader.out));
  }
  if (role == "tool") return Json(dump_json(*content));  // a result that was not turned into text
  return field_error(path, "must be a string or a list of parts, not {}", brief(*content));
}

}  // namespace godwit::chat
