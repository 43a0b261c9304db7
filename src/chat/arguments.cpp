#include "chat/arguments.h"

#include <cmath>
#include <optional>

#include "chat/item.h"
#include "chat/python_literal.h"

namespace godwit::chat {
namespace {

std::optional<Json> strict_json(std::string_view text) {
  auto value = parse_json(text);
  if (!value.ok()) return std::nullopt;
  return std::move(value).value();
}

bool fits(const Json& value, TypeSet types) {
  return types.allows(type_of(value));
}

bool same_word(std::string_view text, std::string_view lower) {
  if (text.size() != lower.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] + ('a' - 'A')) : text[i];
    if (c != lower[i]) return false;
  }
  return true;
}

// 3.0 -> 3, within the range where a double is exact.
std::optional<Json> whole_number(const Json& value) {
  if (!value.is_real()) return std::nullopt;
  double x = value.as_double();
  if (std::trunc(x) != x || std::fabs(x) > 9007199254740992.0) return std::nullopt;
  return Json(static_cast<int64_t>(x));
}

// Api spec §3.3, row "no string": the repairs in their order. `text` is trimmed, `strict` what JSON makes of
// it.
std::optional<Json> repaired(std::string_view text, const std::optional<Json>& strict, TypeSet types) {
  if (strict && strict->is_string()) {
    if (auto inner = strict_json(strict->as_string()); inner && fits(*inner, types)) return inner;
  }
  if (strict && types.has(JsonType::integer)) {
    if (auto whole = whole_number(*strict)) return whole;
  }
  if (types.has(JsonType::boolean)) {
    if (same_word(text, "true") || text == "1") return Json(true);
    if (same_word(text, "false") || text == "0") return Json(false);
  }
  if (types.has(JsonType::null) && (same_word(text, "none") || same_word(text, "null"))) return Json();
  if (types.has(JsonType::array) || types.has(JsonType::object)) {
    if (auto literal = parse_python_literal(text); literal && fits(*literal, types)) return literal;
  }
  return std::nullopt;
}

// `text` is trimmed.
std::optional<Json> without_string(std::string_view text, TypeSet types) {
  std::optional<Json> strict = strict_json(text);
  if (strict && fits(*strict, types)) return strict;
  return repaired(text, strict, types);
}

std::optional<Json> untyped(std::string_view text) {
  std::optional<Json> strict = strict_json(text);
  if (!strict || strict->is_string()) return std::nullopt;
  if (strict->is_number() && dump_json(*strict) != text)
    return std::nullopt;  // 1e5, -0: better the text as it was
  return strict;
}

// Strings inside a parsed container, where the schema forbids a string. As deep as the JSON parser admits.
void coerce_members(Json& value, const Schema& schema) {
  auto coerce = [](Json& item, const Schema& item_schema) {
    if (!item.is_string()) return coerce_members(item, item_schema);
    TypeSet types = item_schema.types();
    if (!types.known() || types.has(JsonType::string)) return;
    if (auto fixed = without_string(trim_blank(item.as_string()), types)) item = std::move(*fixed);
  };
  if (value.is_array()) {
    JsonArray& items = value.as_array();
    for (size_t i = 0; i < items.size(); ++i) coerce(items[i], schema.element(i));
  } else if (value.is_object()) {
    for (auto& [key, member] : value.as_object()) coerce(member, schema.member(key));
  }
}

}  // namespace

Json typed_value(std::string_view raw, const Schema& schema) {
  TypeSet types = schema.types();
  if (types.only_string()) return Json(raw);
  std::string_view text = trim_blank(raw);
  if (text.empty())
    return types.known() && !types.has(JsonType::string) && types.has(JsonType::null) ? Json() : Json(raw);
  std::optional<Json> value;
  if (!types.known()) {
    value = untyped(text);
  } else if (types.has(JsonType::string)) {
    value = strict_json(text);
    if (value && (value->is_string() || !fits(*value, types))) value.reset();
  } else {
    value = without_string(text, types);
  }
  if (!value) return Json(raw);
  coerce_members(*value, schema);
  return std::move(*value);
}

void ArgumentsWriter::open_value(std::string_view key) {
  key_ = key;
  value_schema_ = schema_.member(key);
  ignored_ = keys_.contains(key_);
  streamed_ = value_schema_.types().only_string();
  in_string_ = false;
  raw_.clear();
}

void ArgumentsWriter::value_text(std::string_view text, std::string& out) {
  if (ignored_ || text.empty()) return;
  if (!streamed_) {
    raw_ += text;
    return;
  }
  std::string quoted;
  append_json_string(quoted, text);
  if (!in_string_) write_key(out);
  out.append(quoted, in_string_ ? 1 : 0, quoted.size() - (in_string_ ? 2 : 1));
  in_string_ = true;
}

void ArgumentsWriter::close_value(std::string& out) {
  if (ignored_) return;
  if (in_string_) {
    out += '"';
    return;
  }
  write_key(out);
  append_json(out, streamed_ ? Json("") : typed_value(raw_, value_schema_));
}

void ArgumentsWriter::cut_value(std::string& out) {
  if (in_string_) out += '"';
}

void ArgumentsWriter::finish(std::string& out) {
  out += keys_.empty() ? "{}" : "}";
}

void ArgumentsWriter::write_key(std::string& out) {
  out += keys_.empty() ? "{" : ", ";
  append_json_string(out, key_);
  out += ": ";
  keys_.insert(key_);
}

}  // namespace godwit::chat
