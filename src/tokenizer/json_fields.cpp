#include "tokenizer/json_fields.h"

#include <algorithm>
#include <vector>

namespace godwit::tokenizer {
namespace {

std::string_view kind_of(const simdjson::dom::element& value) {
  using Type = simdjson::dom::element_type;
  switch (value.type()) {
    case Type::ARRAY:
      return "an array";
    case Type::OBJECT:
      return "an object";
    case Type::STRING:
      return "a string";
    case Type::BOOL:
      return "a boolean";
    case Type::NULL_VALUE:
      return "null";
    default:
      return "a number";
  }
}

}  // namespace

std::string clip(std::string_view text) {
  constexpr size_t kShown = 60;
  if (text.size() <= kShown) return std::string(text);
  size_t end = kShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

JsonField JsonField::child(std::string_view key, simdjson::dom::element element) const {
  return {file, path.empty() ? std::string(key) : fmt::format("{}.{}", path, key), element};
}

JsonField JsonField::item(size_t index, simdjson::dom::element element) const {
  return {file, fmt::format("{}[{}]", path, index), element};
}

Result<simdjson::dom::object> JsonField::object() const {
  simdjson::dom::object out;
  if (value.get(out)) return refuse("must be an object, is {}", kind_of(value));
  return out;
}

Result<simdjson::dom::array> JsonField::array() const {
  simdjson::dom::array out;
  if (value.get(out)) return refuse("must be an array, is {}", kind_of(value));
  return out;
}

Result<std::string_view> JsonField::string() const {
  std::string_view out;
  if (value.get(out)) return refuse("must be a string, is {}", kind_of(value));
  return out;
}

Result<bool> JsonField::boolean() const {
  bool out;
  if (value.get(out)) return refuse("must be true or false, is {}", kind_of(value));
  return out;
}

Result<int64_t> JsonField::integer(int64_t low, int64_t high) const {
  int64_t out;
  if (value.get(out)) return refuse("must be an integer, is {}", kind_of(value));
  if (out < low || out > high) return refuse("is {}, must be within {}..{}", out, low, high);
  return out;
}

Result<std::optional<JsonField>> JsonField::optional(std::string_view key) const {
  GODWIT_ASSIGN(auto members, object());
  simdjson::dom::element found;
  if (members.at_key(key).get(found) || found.is_null()) return std::optional<JsonField>{};
  return std::optional<JsonField>(child(key, found));
}

Result<JsonField> JsonField::member(std::string_view key) const {
  GODWIT_ASSIGN(auto members, object());
  simdjson::dom::element found;
  if (members.at_key(key).get(found)) return child(key, value).refuse("is missing");
  return child(key, found);
}

Result<bool> JsonField::flag(std::string_view key) const {
  GODWIT_ASSIGN(auto field, optional(key));
  if (!field) return false;
  return field->boolean();
}

Result<void> JsonField::only(std::initializer_list<std::string_view> known) const {
  GODWIT_ASSIGN(auto members, object());
  std::vector<std::string_view> seen;
  for (auto [key, element] : members) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      return child(clip(key), element).refuse("is not a known field");
    if (std::find(seen.begin(), seen.end(), key) != seen.end())
      return child(key, element).refuse("appears twice");
    seen.push_back(key);
  }
  return {};
}

Result<void> JsonField::must_be_null(std::string_view key) const {
  GODWIT_ASSIGN(auto field, optional(key));
  if (field) return field->refuse("must be null, is {}: not supported", kind_of(field->value));
  return {};
}

Result<void> JsonField::must_be_false(std::string_view key) const {
  GODWIT_ASSIGN(bool on, flag(key));
  if (on) return child(key, value).refuse("true is not supported");
  return {};
}

}  // namespace godwit::tokenizer
