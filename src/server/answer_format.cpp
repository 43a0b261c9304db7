#include "server/answer_format.h"

#include <optional>

namespace godwit::server {
namespace {

using Content = AnswerFormat::Content;

// As the grammar has it; here so that nothing longer is copied.
constexpr size_t kMostChoices = 10'000;

// A schema: an object, or the text of one.
std::optional<Json> schema_of(Fields& fields, std::string_view key) {
  const Json* value = fields.any(key);
  if (!value) return std::nullopt;
  if (value->is_object()) return *value;
  if (value->is_string()) {
    auto parsed = parse_json(value->as_string());
    if (parsed && parsed->is_object()) return *std::move(parsed);
    fields.refuse(key, "is a string, but not the JSON text of a schema object");
    return std::nullopt;
  }
  fields.refuse(key, "must be a JSON Schema object, got " + describe(*value));
  return std::nullopt;
}

AnswerFormat response_format(Fields& fields, const Json& format) {
  AnswerFormat out;
  Fields inner(format, "response_format");
  const std::string* type = inner.string("type");
  if (!type && !inner.error()) inner.refuse("type", "is required");
  const std::string word = type ? *type : "text";
  if (word == "json_object" || word == "json_schema") {
    // OpenAI nests the schema, llama.cpp puts it beside the type, also under json_object.
    const Json* nested = word == "json_schema" ? inner.object("json_schema") : nullptr;
    Fields place(nested ? *nested : format, nested ? "response_format.json_schema" : "response_format");
    out.content = word == "json_object" ? Content::json_object : Content::json_schema;
    out.field = place.path_of("schema");
    if (auto schema = schema_of(place, "schema")) {
      out.content = Content::json_schema;
      out.schema = std::move(*schema);
    } else if (out.content == Content::json_schema && !place.error()) {
      place.refuse("schema", "is required");
    }
    if (nested) place.boolean("strict");  // without it the schema holds all the same
    if (place.error()) inner.keep(*place.error());
  } else if (word != "text") {
    inner.refuse("type", "must be \"text\", \"json_object\" or \"json_schema\", got " + describe(Json(word)));
  }
  if (inner.error()) fields.keep(*inner.error());
  return out;
}

void read_choices(Fields& fields, std::string_view key, AnswerFormat& out) {
  const JsonArray* items = fields.array(key, kMostChoices);
  if (!items) return;
  if (items->empty()) return fields.refuse(key, "must not be empty");
  for (size_t i = 0; i < items->size(); ++i) {
    if (!(*items)[i].is_string())
      return fields.refuse(fmt::format("{}[{}]", key, i), "must be a string, got " + describe((*items)[i]));
    out.choices.push_back((*items)[i].as_string());
  }
}

// One of the three by `key`; what `key` means is `content`.
AnswerFormat extension(Fields& fields, std::string_view key, Content content) {
  AnswerFormat out;
  out.content = content;
  out.field = fields.path_of(key);
  if (content == Content::json_schema) {
    if (auto schema = schema_of(fields, key)) out.schema = std::move(*schema);
  } else if (content == Content::regex) {
    if (const std::string* text = fields.string(key)) out.regex = *text;
  } else if (content == Content::choice) {
    read_choices(fields, key, out);
  } else if (!fields.boolean(key).value_or(false)) {
    out.content = Content::any_text;
  }
  return out;
}

}  // namespace

AnswerFormat read_answer_format(Fields& fields) {
  std::vector<AnswerFormat> found;
  const auto keep = [&](AnswerFormat format) {
    if (format.content != Content::any_text) found.push_back(std::move(format));
  };
  const auto read = [&](Fields& from, std::string_view key, Content content) {
    if (from.has(key)) keep(extension(from, key, content));
  };
  if (const Json* format = fields.object("response_format")) keep(response_format(fields, *format));
  read(fields, "guided_json", Content::json_schema);
  read(fields, "guided_regex", Content::regex);
  read(fields, "guided_choice", Content::choice);
  if (const Json* outputs = fields.object("structured_outputs")) {
    Fields inner(*outputs, "structured_outputs");
    read(inner, "json", Content::json_schema);
    read(inner, "regex", Content::regex);
    read(inner, "choice", Content::choice);
    read(inner, "json_object", Content::json_object);
    for (const std::string_view key : {"grammar", "structural_tag"})
      if (inner.has(key)) inner.refuse(key, "is not supported; json, regex, choice and json_object are");
    if (inner.error()) fields.keep(*inner.error());
  }
  if (found.size() > 1)
    fields.keep(Error{ErrorCode::invalid_request,
                      fmt::format("{} and {} both say what the answer must look like; send one of them",
                                  found[0].field, found[1].field),
                      found[1].field});
  return found.empty() ? AnswerFormat() : std::move(found[0]);
}

}  // namespace godwit::server
