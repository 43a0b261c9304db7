#include "grammar/schema_merge.h"

#include <algorithm>
#include <charconv>

namespace godwit::grammar {
namespace {

constexpr unsigned kMaxDepth = 64;          // of $ref and allOf within each other
constexpr size_t kMaxCompared = 4'000'000;  // pairs of values, when two lists are merged
constexpr size_t kMaxCopied = 2'000'000;    // JSON values

size_t values_in(const Json& value) {
  size_t count = 1;
  if (value.is_array()) {
    for (const Json& item : value.as_array()) count += values_in(item);
  } else if (value.is_object()) {
    for (const auto& member : value.as_object()) count += values_in(member.second);
  }
  return count;
}

bool is_true(const Json& value) {
  return value.is_bool() && value.as_bool();
}

// `mine` and `value`, in one list however many come together: nesting them would nest every later step.
void conjoin(Json& mine, const Json& value) {
  if (mine.is_object() && mine.as_object().size() == 1 && mine.find("allOf") != nullptr) {
    mine.as_object().find("allOf")->as_array().push_back(value);
  } else {
    mine = Json::object({{"allOf", JsonArray{mine, value}}});
  }
}

JsonArray as_list(const Json& value) {
  return value.is_array() ? value.as_array() : JsonArray{value};
}

bool contains(const JsonArray& list, const Json& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// Types that both lists allow; an integer is a number.
JsonArray common_types(const JsonArray& a, const JsonArray& b) {
  JsonArray out;
  for (const Json& type : a) {
    if (contains(b, type) || (type == Json("integer") && contains(b, "number"))) out.push_back(type);
    if (type == Json("number") && !contains(b, type) && contains(b, "integer")) out.push_back("integer");
  }
  return out;
}

}  // namespace

Result<const Json*> SchemaMerger::resolve(const Json& ref, std::string_view path) const {
  const std::string& text = ref.as_string();
  if (text.empty() || text[0] != '#')
    return schema_error("$ref", path,
                        "'{}' is not in this schema; only references of the form #/… are supported", text);
  std::string pointer;
  for (size_t i = 1; i < text.size(); ++i) {
    unsigned byte = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16).ptr == text.data() + i + 3) {
      pointer += static_cast<char>(byte);
      i += 2;
    } else {
      pointer += text[i];
    }
  }
  const Json* at = &root_;
  size_t from = 0;
  while (at != nullptr && from < pointer.size()) {
    if (pointer[from] != '/')
      return schema_error("$ref", path, "'{}' names an anchor; only JSON pointers (#/…) are supported", text);
    const size_t end = std::min(pointer.find('/', from + 1), pointer.size());
    std::string key = pointer.substr(from + 1, end - from - 1);
    for (size_t tilde = key.find('~'); tilde != key.npos; tilde = key.find('~', tilde + 1)) {
      if (tilde + 1 < key.size()) key.replace(tilde, 2, key[tilde + 1] == '1' ? "/" : "~");
    }
    size_t index = 0;
    if (at->is_array()) {
      auto parsed = std::from_chars(key.data(), key.data() + key.size(), index);
      const bool valid = parsed.ec == std::errc() && parsed.ptr == key.data() + key.size();
      at = valid && index < at->as_array().size() ? &at->as_array()[index] : nullptr;
    } else {
      at = at->find(key);
    }
    from = end;
  }
  if (at == nullptr) return schema_error("$ref", path, "'{}' names nothing in this schema", text);
  return at;
}

Result<void> SchemaMerger::spend(const Json& schema, const std::string& path) {
  copied_ += values_in(schema);
  if (copied_ > kMaxCopied)
    return make_error(
        ErrorCode::invalid_request, "schema",
        "the JSON Schema grows past {} values when $ref and allOf are merged at {}; make it smaller",
        kMaxCopied, path);
  return {};
}

Result<Json> SchemaMerger::flatten(const Json& schema, const std::string& path, unsigned depth) {
  if (depth > kMaxDepth)
    return schema_error(schema.find("$ref") != nullptr ? "$ref" : "allOf", path,
                        "references and allOf lead more than {} levels on without content", kMaxDepth);
  if (schema.is_bool()) return is_true(schema) ? Json(JsonObject()) : Json::object({{"enum", JsonArray()}});
  GODWIT_TRY(check_keywords(schema, path));
  GODWIT_TRY(spend(schema, path));
  JsonObject out;
  for (const auto& [keyword, value] : schema.as_object()) {
    if (keyword == "$ref" || keyword == "allOf" || is_annotation(keyword)) continue;
    if (keyword == "const") {
      GODWIT_TRY(merge_keyword(out, "enum", JsonArray{value}, path));
    } else {
      GODWIT_TRY(merge_keyword(out, keyword, value, path));
    }
  }
  if (const Json* ref = schema.find("$ref")) {
    GODWIT_ASSIGN(const Json* target, resolve(*ref, path));
    GODWIT_ASSIGN(const Json flat, flatten(*target, ref->as_string(), depth + 1));
    GODWIT_TRY(merge(out, flat.as_object(), path));
  }
  if (const Json* parts = schema.find("allOf")) {
    for (size_t i = 0; i < parts->as_array().size(); ++i) {
      GODWIT_ASSIGN(const Json flat,
                    flatten(parts->as_array()[i], fmt::format("{}/allOf/{}", path, i), depth + 1));
      GODWIT_TRY(merge(out, flat.as_object(), path));
    }
  }
  return Json(std::move(out));
}

// additionalProperties speaks of the properties beside it, which merging would change.
Result<void> SchemaMerger::merge_additional(const JsonObject& a, const JsonObject& b,
                                            const std::string& path) const {
  const Json* additional = a.find("additionalProperties");
  const Json* others = b.find("properties");
  if (additional == nullptr || is_true(*additional) || others == nullptr) return {};
  const Json* own = a.find("properties");
  for (const auto& member : others->as_object()) {
    if (own == nullptr || own->find(member.first) == nullptr)
      return schema_error(
          "additionalProperties", path,
          "cannot be merged with property '{}' of another part of allOf or $ref; list all properties "
          "in one object",
          member.first);
  }
  return {};
}

Result<void> SchemaMerger::merge(JsonObject& into, const JsonObject& from, const std::string& path) {
  GODWIT_TRY(merge_additional(into, from, path));
  GODWIT_TRY(merge_additional(from, into, path));
  for (const auto& [keyword, value] : from) GODWIT_TRY(merge_keyword(into, keyword, value, path));
  return {};
}

Result<void> SchemaMerger::merge_keyword(JsonObject& into, std::string_view keyword, const Json& value,
                                         const std::string& path) {
  Json* mine = into.find(keyword);
  if (mine == nullptr) {
    into.set(keyword, value);
  } else if (keyword == "type") {
    *mine = Json(common_types(as_list(*mine), as_list(value)));
  } else if ((keyword == "enum" || keyword == "required") &&
             mine->as_array().size() * value.as_array().size() > kMaxCompared) {
    return schema_error(keyword, path, "lists of {} and {} values are too long to be merged by allOf or $ref",
                        mine->as_array().size(), value.as_array().size());
  } else if (keyword == "enum") {
    std::erase_if(mine->as_array(), [&](const Json& item) { return !contains(value.as_array(), item); });
  } else if (keyword == "properties") {
    for (const auto& [name, schema] : value.as_object()) {
      GODWIT_TRY(spend(schema, path));
      if (Json* other = mine->as_object().find(name)) {
        conjoin(*other, schema);
      } else {
        mine->as_object().set(name, schema);
      }
    }
  } else if (keyword == "required") {
    for (const Json& name : value.as_array()) {
      if (!contains(mine->as_array(), name)) mine->as_array().push_back(name);
    }
  } else if (keyword == "items" || keyword == "additionalProperties") {
    conjoin(*mine, value);
  } else if (keyword == "minLength" || keyword == "minItems" || keyword == "minimum" ||
             keyword == "exclusiveMinimum") {
    if (value.as_double() > mine->as_double()) *mine = value;
  } else if (keyword == "maxLength" || keyword == "maxItems" || keyword == "maximum" ||
             keyword == "exclusiveMaximum") {
    if (value.as_double() < mine->as_double()) *mine = value;
  } else if (keyword == "nullable") {
    *mine = is_true(*mine) && is_true(value);
  } else if (!(*mine == value)) {
    return schema_error(keyword, path, "two different values cannot be merged by allOf or $ref");
  }
  return {};
}

}  // namespace godwit::grammar
