// Which JSON Schema keywords are supported, and what their values must be (docs/structured_output.md).
#include <algorithm>
#include <array>

#include "grammar/schema_merge.h"

namespace godwit::grammar {
namespace {

constexpr std::string_view kAnnotations[] = {
    "title",           "description",  "default",     "examples",      "example",
    "deprecated",      "readOnly",     "writeOnly",   "$schema",       "$id",
    "$comment",        "$defs",        "definitions", "discriminator", "contentMediaType",
    "contentEncoding", "externalDocs", "xml"};

constexpr std::string_view kTypes[] = {"null", "boolean", "integer", "number", "string", "array", "object"};

enum class Kind : uint8_t {
  schema,
  schemas,
  schema_map,
  names,
  values,
  any,
  count,
  number,
  text,
  flag,
  type
};

struct Keyword {
  std::string_view name;
  Kind kind;
};

constexpr Keyword kKeywords[] = {{"type", Kind::type},
                                 {"enum", Kind::values},
                                 {"const", Kind::any},
                                 {"properties", Kind::schema_map},
                                 {"required", Kind::names},
                                 {"additionalProperties", Kind::schema},
                                 {"items", Kind::schema},
                                 {"prefixItems", Kind::schemas},
                                 {"minItems", Kind::count},
                                 {"maxItems", Kind::count},
                                 {"minLength", Kind::count},
                                 {"maxLength", Kind::count},
                                 {"pattern", Kind::text},
                                 {"format", Kind::text},
                                 {"minimum", Kind::number},
                                 {"maximum", Kind::number},
                                 {"exclusiveMinimum", Kind::number},
                                 {"exclusiveMaximum", Kind::number},
                                 {"anyOf", Kind::schemas},
                                 {"oneOf", Kind::schemas},
                                 {"allOf", Kind::schemas},
                                 {"$ref", Kind::text},
                                 {"nullable", Kind::flag},
                                 {"uniqueItems", Kind::flag}};

bool all_are(const Json& value, bool (Json::*is)() const) {
  return value.is_array() && std::all_of(value.as_array().begin(), value.as_array().end(),
                                         [&](const Json& item) { return (item.*is)(); });
}

bool is_schema(const Json& value) {
  return value.is_object() || value.is_bool();
}

bool is_type(const Json& value) {
  return value.is_string() &&
         std::find(std::begin(kTypes), std::end(kTypes), value.as_string()) != std::end(kTypes);
}

// What the value must be, when it is not; empty when it is.
std::string_view wrong(Kind kind, const Json& value) {
  switch (kind) {
    case Kind::schema:
      return is_schema(value) ? "" : "a schema (an object, true or false)";
    case Kind::schemas:
      return value.is_array() && !value.as_array().empty() &&
                     std::all_of(value.as_array().begin(), value.as_array().end(), is_schema)
                 ? ""
                 : "a list of at least one schema";
    case Kind::schema_map:
      return value.is_object() && std::all_of(value.as_object().begin(), value.as_object().end(),
                                              [](const auto& member) { return is_schema(member.second); })
                 ? ""
                 : "an object of schemas";
    case Kind::names:
      return all_are(value, &Json::is_string) ? "" : "a list of strings";
    case Kind::values:
      return value.is_array() ? "" : "a list of values";
    case Kind::any:
      return "";
    case Kind::count:
      return value.is_integer() && value.as_integer() >= 0 && value.as_integer() <= INT32_MAX
                 ? ""
                 : "an integer from 0 to 2147483647";
    case Kind::number:
      return value.is_number() ? "" : "a number";
    case Kind::text:
      return value.is_string() ? "" : "a string";
    case Kind::flag:
      return value.is_bool() ? "" : "true or false";
    case Kind::type:
      return is_type(value) || (value.is_array() && !value.as_array().empty() &&
                                value.as_array().size() <= std::size(kTypes) &&
                                std::all_of(value.as_array().begin(), value.as_array().end(), is_type))
                 ? ""
                 : "null, boolean, integer, number, string, array or object, or a list of these";
  }
  return "";
}

}  // namespace

bool is_annotation(std::string_view keyword) {
  return keyword.starts_with("x-") ||
         std::find(std::begin(kAnnotations), std::end(kAnnotations), keyword) != std::end(kAnnotations);
}

Result<void> check_keywords(const Json& schema, std::string_view path) {
  if (!schema.is_object())
    return make_error(ErrorCode::invalid_request, "schema",
                      "the JSON Schema at {} must be an object, true or false", path);
  for (const auto& [name, value] : schema.as_object()) {
    if (is_annotation(name)) continue;
    auto keyword = std::find_if(std::begin(kKeywords), std::end(kKeywords),
                                [&name = name](const Keyword& k) { return k.name == name; });
    if (keyword == std::end(kKeywords))
      return schema_error(name, path,
                          "is not supported; remove it from the schema and check it in the client");
    if (auto expected = wrong(keyword->kind, value); !expected.empty())
      return schema_error(name, path, "its value must be {}", expected);
    if (name == "uniqueItems" && value.as_bool())
      return schema_error(name, path,
                          "true is not supported; remove it from the schema and check it in the client");
  }
  return {};
}

}  // namespace godwit::grammar
