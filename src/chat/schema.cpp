#include "chat/schema.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "chat/pattern.h"

namespace godwit::chat {
namespace {

constexpr int kMaxReferences = 32;  // in a row
constexpr int kMaxDepth = 32;       // of nested anyOf/oneOf/allOf
constexpr int kMaxNodes = 2000;     // per question, all branches together

TypeSet named_type(const Json& name) {
  static constexpr std::pair<std::string_view, JsonType> kNames[] = {
      {"string", JsonType::string},   {"integer", JsonType::integer}, {"number", JsonType::number},
      {"boolean", JsonType::boolean}, {"null", JsonType::null},       {"array", JsonType::array},
      {"object", JsonType::object},   {"str", JsonType::string},      {"int", JsonType::integer},
      {"float", JsonType::number},    {"bool", JsonType::boolean},    {"list", JsonType::array},
      {"dict", JsonType::object}};
  TypeSet out;
  if (!name.is_string()) return out;
  for (const auto& [text, type] : kNames) {
    if (name.as_string() == text) out.add(type);
  }
  return out;
}

TypeSet declared_types(const Json& type) {
  if (!type.is_array()) return named_type(type);
  TypeSet out;
  for (size_t i = 0; i < type.as_array().size(); ++i) {
    TypeSet one = named_type(type.as_array()[i]);
    out = i == 0 ? one : out.united(one);
  }
  return out;
}

// A URI fragment may write any byte as %XX.
std::string unquoted(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16).ptr == text.data() + i + 3) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// One step of a JSON pointer: "~1" is '/', "~0" is '~'.
std::string pointer_token(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    bool quoted = text[i] == '~' && i + 1 < text.size() && (text[i + 1] == '0' || text[i + 1] == '1');
    out += !quoted ? text[i] : text[++i] == '0' ? '~' : '/';
  }
  return out;
}

const Json* child(const Json& node, const std::string& token) {
  if (!node.is_array()) return node.find(token);
  size_t index = 0;
  auto end = std::from_chars(token.data(), token.data() + token.size(), index);
  if (end.ec != std::errc() || end.ptr != token.data() + token.size()) return nullptr;
  return index < node.as_array().size() ? &node.as_array()[index] : nullptr;
}

const Json* follow(const Json& root, std::string_view reference) {
  if (!reference.starts_with('#')) return nullptr;
  std::string pointer = unquoted(reference.substr(1));
  std::string_view rest = pointer;
  const Json* node = &root;
  while (node != nullptr && rest.starts_with('/')) {
    rest.remove_prefix(1);
    size_t end = std::min(rest.find('/'), rest.size());
    node = child(*node, pointer_token(rest.substr(0, end)));
    rest.remove_prefix(end);
  }
  return rest.empty() ? node : nullptr;
}

}  // namespace

JsonType type_of(const Json& value) {
  switch (value.kind()) {
    case Json::Kind::null:
      return JsonType::null;
    case Json::Kind::boolean:
      return JsonType::boolean;
    case Json::Kind::integer:
    case Json::Kind::big_integer:
      return JsonType::integer;
    case Json::Kind::real:
      return JsonType::number;
    case Json::Kind::string:
      return JsonType::string;
    case Json::Kind::array:
      return JsonType::array;
    case Json::Kind::object:
      break;
  }
  return JsonType::object;
}

Schema Schema::resolved() const {
  const Json* node = node_;
  for (int hops = 0; node != nullptr && node->is_object(); ++hops) {
    const Json* reference = node->find("$ref");
    if (reference == nullptr || !reference->is_string()) return {root_, node};
    if (hops == kMaxReferences) break;  // a circle
    node = follow(*root_, reference->as_string());
  }
  return {};
}

TypeSet Schema::types() const {
  int budget = kMaxNodes;
  return types(0, budget);
}

TypeSet Schema::types(int depth, int& budget) const {
  Schema self = resolved();
  if (self.node_ == nullptr || depth > kMaxDepth || --budget < 0) return {};
  const Json& node = *self.node_;
  TypeSet out;
  if (const Json* type = node.find("type")) {
    out = declared_types(*type);
  } else if (const Json* values = node.find("enum"); values != nullptr && values->is_array()) {
    for (const Json& value : values->as_array()) out.add(type_of(value));
  } else if (const Json* value = node.find("const")) {
    out.add(type_of(*value));
  }
  out = out.intersected(self.branches("anyOf", false, depth, budget));
  out = out.intersected(self.branches("oneOf", false, depth, budget));
  out = out.intersected(self.branches("allOf", true, depth, budget));
  const Json* nullable = node.find("nullable");
  if (out.known() && nullable != nullptr && nullable->is_bool() && nullable->as_bool())
    out.add(JsonType::null);
  return out;
}

TypeSet Schema::branches(std::string_view keyword, bool all, int depth, int& budget) const {
  const Json* list = node_->find(keyword);
  TypeSet out;
  if (list == nullptr || !list->is_array()) return out;
  for (size_t i = 0; i < list->as_array().size(); ++i) {
    TypeSet one = Schema(root_, &list->as_array()[i]).types(depth + 1, budget);
    out = all ? out.intersected(one) : i == 0 ? one : out.united(one);
    if (budget < 0) return {};
  }
  return out;
}

Schema Schema::member(std::string_view key) const {
  Schema self = resolved();
  if (self.node_ == nullptr) return {};
  if (const Json* properties = self.node_->find("properties")) {
    if (const Json* found = properties->find(key)) return {root_, found};
  }
  if (const Json* patterns = self.node_->find("patternProperties");
      patterns != nullptr && patterns->is_object()) {
    for (const auto& [pattern, schema] : patterns->as_object()) {
      if (pattern_matches(pattern, key)) return {root_, &schema};
    }
  }
  const Json* rest = self.node_->find("additionalProperties");
  return rest != nullptr && rest->is_object() ? Schema(root_, rest) : Schema();
}

Schema Schema::element(size_t index) const {
  Schema self = resolved();
  if (self.node_ == nullptr) return {};
  const Json* first = self.node_->find("prefixItems");
  if (first != nullptr && first->is_array() && index < first->as_array().size()) {
    return {root_, &first->as_array()[index]};
  }
  const Json* items = self.node_->find("items");
  return items != nullptr && items->is_object() ? Schema(root_, items) : Schema();
}

}  // namespace godwit::chat
