// Random schemas, their documents, and a validator.
#include <algorithm>
#include <cmath>

#include "fixtures.h"
#include "tokenizer/utf8.h"

namespace godwit::grammar::test {
namespace {

struct Sample {
  const char* pattern;
  std::vector<const char*> matches;
  bool (*check)(const std::string&);
};

bool all_in(const std::string& text, std::string_view set) {
  return text.find_first_not_of(set) == std::string::npos;
}

// Patterns with a hand-written check each, so that the validator shares nothing with the regex compiler.
const std::vector<Sample>& samples() {
  static const std::vector<Sample> list = {
      {"^[a-f]{2,4}$",
       {"ab", "fade"},
       [](const std::string& s) { return s.size() >= 2 && s.size() <= 4 && all_in(s, "abcdef"); }},
      {"x", {"x", "axe", "über x"}, [](const std::string& s) { return s.find('x') != std::string::npos; }},
      {"^(yes|no)?$",
       {"", "yes", "no"},
       [](const std::string& s) { return s.empty() || s == "yes" || s == "no"; }},
      {"^\\d+-\\w*$",
       {"1-", "42-ab_9"},
       [](const std::string& s) {
         const size_t dash = s.find('-');
         return dash != std::string::npos && dash > 0 && all_in(s.substr(0, dash), "0123456789") &&
                std::all_of(s.begin() + static_cast<std::ptrdiff_t>(dash) + 1, s.end(),
                            [](unsigned char c) { return c < 128 && (std::isalnum(c) || c == '_'); });
       }},
      {"^[^\"\\\\]*\"$",
       {"\"", "say \""},
       [](const std::string& s) { return s.find('"') == s.size() - 1 && s.find('\\') == std::string::npos; }},
      {"^[α-ω]+$",
       {"αβγ", "ω"},
       [](const std::string& s) {
         for (size_t i = 0; i + 1 < s.size(); i += 2) {
           unsigned n = 0;
           const uint32_t c = tokenizer::decode_utf8(reinterpret_cast<const unsigned char*>(&s[i]), n);
           if (n != 2 || c < 0x3B1 || c > 0x3C9) return false;
         }
         return !s.empty() && s.size() % 2 == 0;
       }},
  };
  return list;
}

std::string random_text(Random& random, uint64_t min, uint64_t max) {
  static const std::vector<std::string> kPieces = {"a",  "b",  " ", "Z",  "7", "\"",  "\\", "/",
                                                   "\n", "\t", "é", "世", "😀", "the", "{",  "]"};
  std::string out;
  const uint64_t size = min + random() % (max - min + 1);
  for (uint64_t i = 0; i < size; ++i) {
    std::string piece = kPieces[random() % kPieces.size()];
    out += piece == "the" ? "t" : piece;
  }
  return out;
}

size_t characters(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

Json scalar_schema(Random& random) {
  switch (random() % 9) {
    case 0:
      return Json::object({{"type", "boolean"}});
    case 1:
      return Json::object({{"type", JsonArray{"null", "integer"}}});
    case 2: {
      const auto low = static_cast<int64_t>(random() % 2000) - 1000;
      const auto span = static_cast<int64_t>(random() % 500) + 1;
      return Json::object({{"type", "integer"},
                           {random() % 2 ? "minimum" : "exclusiveMinimum", low - 1},
                           {"maximum", low + span}});
    }
    case 3:
      return Json::object({{"type", "number"}, {"minimum", -2.5}, {"exclusiveMaximum", 30.25}});
    case 4:
      return Json::object({{"type", "number"}});
    case 5:
      return Json::object({{"enum", JsonArray{"red", "rose", "gr\"ün", 7, nullptr, 1.5, JsonArray{1, "x"},
                                              Json::object({{"k", true}})}}});
    case 6: {
      const auto low = static_cast<int64_t>(random() % 5);
      return Json::object(
          {{"type", "string"}, {"minLength", low}, {"maxLength", low + static_cast<int64_t>(random() % 60)}});
    }
    case 7:
      return Json::object({{"type", "string"}, {"pattern", samples()[random() % samples().size()].pattern}});
    default:
      return Json::object({{"type", "string"}});
  }
}

Json schema_at(Random& random, int depth) {
  if (depth == 0) return scalar_schema(random);
  switch (random() % 8) {
    case 0: {
      Json out = Json::object({{"type", "array"}, {"items", schema_at(random, depth - 1)}});
      const auto min = static_cast<int64_t>(random() % 3);
      if (random() % 2) out.as_object().set("minItems", min);
      if (random() % 2) out.as_object().set("maxItems", min + 1 + static_cast<int64_t>(random() % 4));
      return out;
    }
    case 1:
      return Json::object({{"type", "array"},
                           {"prefixItems", JsonArray{schema_at(random, depth - 1), scalar_schema(random)}},
                           {"minItems", 2},
                           {"items", random() % 2 ? Json(false) : scalar_schema(random)}});
    case 2:
      return Json::object(
          {{random() % 2 ? "anyOf" : "oneOf",
            JsonArray{schema_at(random, depth - 1), schema_at(random, depth - 1), scalar_schema(random)}}});
    case 3:
      return scalar_schema(random);
    case 4:
      return Json::object({{"$ref", "#/$defs/tree"}});
    case 5:
      return Json::object(
          {{"allOf",
            JsonArray{Json::object({{"type", "object"},
                                    {"properties", Json::object({{"left", schema_at(random, depth - 1)}})}}),
                      Json::object({{"properties", Json::object({{"right", scalar_schema(random)}})},
                                    {"required", JsonArray{"left"}}})}}});
    default: {
      JsonObject properties;
      JsonArray required;
      const char* names[] = {"name", "name2", "na\"me", "größe", "z", "id"};
      for (const char* name : names) {
        if (random() % 3 == 0) continue;
        properties.set(name, schema_at(random, depth - 1));
        if (random() % 2) required.push_back(name);
      }
      Json out = Json::object({{"type", "object"}, {"properties", properties}, {"required", required}});
      const auto more = random() % 4;
      if (more == 0) out.as_object().set("additionalProperties", false);
      if (more == 1) out.as_object().set("additionalProperties", scalar_schema(random));
      if (more == 2 && random() % 2) out.as_object().set("additionalProperties", true);
      return out;
    }
  }
}

const Json& target_of(const Json& schema, const Json& root) {
  const Json* ref = schema.find("$ref");
  return ref == nullptr ? schema : *root.find("$defs")->find("tree");
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_bool();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (type == "integer" && value.is_real()) return std::trunc(value.as_double()) == value.as_double();
  return value.is_number();
}

std::string number_violation(const Json& value, const Json& schema) {
  const double x = value.as_double();
  auto bound = [&](const char* name) { return schema.find(name); };
  if (const Json* b = bound("minimum"); b && x < b->as_double()) return "minimum";
  if (const Json* b = bound("exclusiveMinimum"); b && x <= b->as_double()) return "exclusiveMinimum";
  if (const Json* b = bound("maximum"); b && x > b->as_double()) return "maximum";
  if (const Json* b = bound("exclusiveMaximum"); b && x >= b->as_double()) return "exclusiveMaximum";
  return "";
}

std::string string_violation(const std::string& text, const Json& schema) {
  const auto size = static_cast<int64_t>(characters(text));
  if (const Json* b = schema.find("minLength"); b && size < b->as_integer()) return "minLength";
  if (const Json* b = schema.find("maxLength"); b && size > b->as_integer()) return "maxLength";
  if (const Json* pattern = schema.find("pattern")) {
    for (const Sample& sample : samples()) {
      if (pattern->as_string() == sample.pattern && !sample.check(text))
        return "pattern " + pattern->as_string();
    }
  }
  return "";
}

std::string array_violation(const JsonArray& list, const Json& schema, const Json& root) {
  const auto size = static_cast<int64_t>(list.size());
  if (const Json* b = schema.find("minItems"); b && size < b->as_integer()) return "minItems";
  if (const Json* b = schema.find("maxItems"); b && size > b->as_integer()) return "maxItems";
  const Json* prefix = schema.find("prefixItems");
  const Json* items = schema.find("items");
  for (size_t i = 0; i < list.size(); ++i) {
    const Json* own = prefix && i < prefix->as_array().size() ? &prefix->as_array()[i] : items;
    if (own == nullptr) continue;
    if (auto wrong = violation(list[i], *own, root); !wrong.empty()) return fmt::format("[{}] {}", i, wrong);
  }
  return "";
}

std::string object_violation(const JsonObject& object, const Json& schema, const Json& root) {
  if (const Json* required = schema.find("required")) {
    for (const Json& name : required->as_array()) {
      if (object.find(name.as_string()) == nullptr) return "required " + name.as_string();
    }
  }
  const Json* properties = schema.find("properties");
  const Json* additional = schema.find("additionalProperties");
  for (const auto& [name, value] : object) {
    const Json* own = properties ? properties->find(name) : nullptr;
    if (own == nullptr) own = additional;
    if (own == nullptr) continue;
    if (auto wrong = violation(value, *own, root); !wrong.empty()) return name + ": " + wrong;
  }
  return "";
}

}  // namespace

std::string violation(const Json& value, const Json& schema_or_ref, const Json& root) {
  const Json& schema = target_of(schema_or_ref, root);
  if (schema.is_bool()) return schema.as_bool() ? "" : "false";
  if (const Json* type = schema.find("type")) {
    const JsonArray types = type->is_array() ? type->as_array() : JsonArray{*type};
    if (std::none_of(types.begin(), types.end(),
                     [&](const Json& t) { return has_type(value, t.as_string()); }))
      return "type";
  }
  if (const Json* values = schema.find("enum")) {
    if (std::find(values->as_array().begin(), values->as_array().end(), value) == values->as_array().end())
      return "enum";
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {  // oneOf is read as anyOf
    const Json* list = schema.find(keyword);
    if (list != nullptr &&
        std::all_of(list->as_array().begin(), list->as_array().end(),
                    [&](const Json& branch) { return !violation(value, branch, root).empty(); }))
      return keyword;
  }
  if (const Json* list = schema.find("allOf")) {
    for (const Json& part : list->as_array()) {
      if (auto wrong = violation(value, part, root); !wrong.empty()) return "allOf " + wrong;
    }
  }
  if (value.is_number()) return number_violation(value, schema);
  if (value.is_string()) return string_violation(value.as_string(), schema);
  if (value.is_array()) return array_violation(value.as_array(), schema, root);
  if (value.is_object()) return object_violation(value.as_object(), schema, root);
  return "";
}

Json random_schema(Random& random) {
  Json schema = schema_at(random, static_cast<int>(random() % 4));
  schema.as_object().set("$defs", json(R"({"tree": {"type": "object",
      "properties": {"label": {"type": "string", "maxLength": 6}, "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}},
      "required": ["label"], "additionalProperties": false}})"));
  return schema;
}

Json random_document(const Json& schema_or_ref, const Json& root, Random& random, int depth) {
  const Json& schema = target_of(schema_or_ref, root);
  auto value_or = [&](const char* name, int64_t fallback) {
    const Json* v = schema.find(name);
    return v ? v->as_integer() : fallback;
  };
  if (const Json* values = schema.find("enum"))
    return values->as_array()[random() % values->as_array().size()];
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (const Json* list = schema.find(keyword))
      return random_document(list->as_array()[random() % list->as_array().size()], root, random, depth);
  }
  if (const Json* list = schema.find("allOf")) {
    JsonObject out;
    out.set("left",
            random_document(*list->as_array()[0].find("properties")->find("left"), root, random, depth - 1));
    if (random() % 2)
      out.set("right", random_document(*list->as_array()[1].find("properties")->find("right"), root, random,
                                       depth - 1));
    return out;
  }
  const Json* type = schema.find("type");
  const std::string name =
      type->is_array() ? type->as_array()[random() % type->as_array().size()].as_string() : type->as_string();
  if (name == "null") return nullptr;
  if (name == "boolean") return random() % 2 == 0;
  if (name == "integer") {
    int64_t low = value_or("minimum", -1'000'000);
    if (const Json* e = schema.find("exclusiveMinimum")) low = e->as_integer() + 1;
    const int64_t high = value_or("maximum", 1'000'000);
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  }
  if (name == "number") {
    if (schema.find("minimum")) return -2.5 + static_cast<double>(random() % 32000) / 1000;
    const double numbers[] = {0.0, -1.5, 1e22, 3.14159, -2e-7, 12345678.0};
    return numbers[random() % 6];
  }
  if (name == "string") {
    if (const Json* pattern = schema.find("pattern")) {
      for (const Sample& sample : samples()) {
        if (pattern->as_string() == sample.pattern) return sample.matches[random() % sample.matches.size()];
      }
    }
    const auto low = static_cast<uint64_t>(value_or("minLength", 0));
    return random_text(random, low, static_cast<uint64_t>(value_or("maxLength", 20)));
  }
  if (name == "array") {
    JsonArray out;
    const Json* prefix = schema.find("prefixItems");
    const Json* items = schema.find("items");
    if (prefix) {
      for (const Json& item : prefix->as_array())
        out.push_back(random_document(item, root, random, depth - 1));
    }
    const auto low = static_cast<uint64_t>(value_or("minItems", 0));
    const auto high = static_cast<uint64_t>(value_or("maxItems", static_cast<int64_t>(low) + 2));
    const uint64_t size = depth <= 0 ? low : low + random() % (high - low + 1);
    while (items->is_object() && out.size() < size)
      out.push_back(random_document(*items, root, random, depth - 1));
    return out;
  }
  JsonObject out;
  const Json* required = schema.find("required");
  for (const auto& [key, member] : schema.find("properties")->as_object()) {
    const bool needed = std::find(required->as_array().begin(), required->as_array().end(), Json(key)) !=
                        required->as_array().end();
    if (needed || (depth > 0 && random() % 2)) out.set(key, random_document(member, root, random, depth - 1));
  }
  const Json* additional = schema.find("additionalProperties");
  if (additional && !(additional->is_bool() && !additional->as_bool()) && random() % 2) {
    for (const char* key : {"n", "name3", "other\nkey", "größer"}) {
      if (random() % 2)
        out.set(key, additional->is_bool() ? Json(JsonArray{1, Json::object({{"a", nullptr}})})
                                           : random_document(*additional, root, random, depth - 1));
    }
  }
  return out;
}

}  // namespace godwit::grammar::test
