#include "grammar/schema_compiler.h"

#include <algorithm>

namespace godwit::grammar {
namespace {

const Json kAnySchema{JsonObject()};

// Values and bytes of text in a document, up to just beyond the limits.
std::pair<size_t, size_t> measure(const Json& value) {
  size_t values = 0;
  size_t bytes = 0;
  std::vector<const Json*> stack{&value};
  while (!stack.empty() && values <= kMaxSchemaValues && bytes <= kMaxSchemaBytes) {
    const Json* at = stack.back();
    stack.pop_back();
    ++values;
    if (at->is_string()) bytes += at->as_string().size();
    if (at->is_array()) {
      for (const Json& item : at->as_array()) stack.push_back(&item);
    } else if (at->is_object()) {
      for (const auto& [name, member] : at->as_object()) {
        bytes += name.size();
        stack.push_back(&member);
      }
    }
  }
  return {values, bytes};
}

// The types a schema without `type` is about, by its keywords.
std::vector<std::string> implied_types(const Json& flat) {
  std::vector<std::string> types;
  auto has = [&](std::initializer_list<std::string_view> names) {
    return std::any_of(names.begin(), names.end(),
                       [&](std::string_view n) { return flat.find(n) != nullptr; });
  };
  if (has({"properties", "required", "additionalProperties"})) types.emplace_back("object");
  if (has({"items", "prefixItems", "minItems", "maxItems"})) types.emplace_back("array");
  if (has({"minLength", "maxLength", "pattern", "format"})) types.emplace_back("string");
  if (has({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})) types.emplace_back("number");
  return types;
}

std::vector<std::string> types_of(const Json& flat) {
  const Json* type = flat.find("type");
  if (type == nullptr) return implied_types(flat);
  std::vector<std::string> out;
  for (const Json& item : type->is_array() ? type->as_array() : JsonArray{*type}) {
    const std::string& name = item.as_string();
    if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  }
  if (std::find(out.begin(), out.end(), "number") != out.end()) std::erase(out, "integer");
  return out;
}

}  // namespace

uint32_t any_value(Graph& graph) {
  const Graph::Common c = graph.common();
  const uint32_t value = graph.choice({});
  Node members{NodeKind::members};
  members.rest = graph.sequence({c.string, graph.literal(":"), c.gap, value});
  Node items{NodeKind::items};
  items.rest = value;
  Node all{NodeKind::choice};
  all.children = {graph.sequence({c.open_object, graph.add(members)}),
                  graph.sequence({c.open_array, graph.add(items)}),
                  c.string,
                  c.number,
                  c.boolean,
                  c.null};
  graph.set(value, std::move(all));
  return value;
}

uint32_t any_object(Graph& graph) {
  return graph.at(any_value(graph)).children[0];
}

uint32_t SchemaCompiler::any(Form form) {
  if (form == Form::argument) return graph_.common().plain;
  if (any_json_ == kNone) any_json_ = any_value(graph_);
  return any_json_;
}

uint32_t SchemaCompiler::node_of(const Json* schema, std::string path, Form form) {
  auto [known, added] = known_.try_emplace({schema, form}, kNone);
  if (added) {
    known->second = graph_.choice({});
    tasks_.push_back({schema, std::move(path), form, known->second});
  }
  return known->second;
}

Result<void> SchemaCompiler::check_size() const {
  const auto [values, bytes] = measure(root_);
  if (values > kMaxSchemaValues || bytes > kMaxSchemaBytes)
    return make_error(ErrorCode::invalid_request, "schema",
                      "the JSON Schema has more than {} values or {} bytes of text; make it smaller",
                      kMaxSchemaValues, kMaxSchemaBytes);
  return {};
}

Result<uint32_t> SchemaCompiler::compile() {
  GODWIT_TRY(check_size());
  const uint32_t node = node_of(&root_, "#", Form::json);
  GODWIT_TRY(run());
  return node;
}

// Schemas are compiled one by one from a list, so that no schema can nest the compiler's own calls.
Result<void> SchemaCompiler::run() {
  while (!tasks_.empty()) {
    const Task task = std::move(tasks_.back());
    tasks_.pop_back();
    GODWIT_ASSIGN(const uint32_t made, one(task));
    Node node{NodeKind::choice};
    node.children = {made};
    graph_.set(task.node, std::move(node));
    if (!graph_.within_limits())
      return make_error(
          ErrorCode::invalid_request, "schema",
          "the JSON Schema is too large: at {} it passes {} grammar nodes or {} automaton states; "
          "shorten enums, patterns and length limits",
          task.path, graph_.limits().nodes, graph_.limits().dfa_states);
  }
  return {};
}

Result<uint32_t> SchemaCompiler::one(const Task& task) {
  const Json& schema = *task.schema;
  if (schema.is_bool()) return schema.as_bool() ? any(task.form) : graph_.choice({});
  GODWIT_TRY(check_keywords(schema, task.path));
  // A reference by itself is shared, which is also what makes recursion possible.
  const auto& members = schema.as_object();
  const auto said = static_cast<size_t>(
      std::count_if(members.begin(), members.end(), [](const auto& m) { return !is_annotation(m.first); }));
  if (const Json* ref = schema.find("$ref"); ref != nullptr && said == 1) {
    GODWIT_ASSIGN(const Json* target, merger_.resolve(*ref, task.path));
    return node_of(target, ref->as_string(), task.form);
  }
  GODWIT_ASSIGN(const Json flat, merger_.flatten(schema, task.path));
  return alternatives(flat, task);
}

Result<uint32_t> SchemaCompiler::alternatives(const Json& flat, const Task& task) {
  for (std::string_view keyword : {"anyOf", "oneOf"}) {  // oneOf is read as anyOf
    const Json* list = flat.find(keyword);
    if (list == nullptr) continue;
    if (list->as_array().size() > kMaxAlternatives)
      return schema_error(keyword, task.path, "has {} alternatives, the limit is {}", list->as_array().size(),
                          kMaxAlternatives);
    Json rest = flat;
    rest.as_object().erase(keyword);
    std::vector<uint32_t> nodes;
    const Json* kept = merger_.keep(*list);
    for (size_t i = 0; i < kept->as_array().size(); ++i) {
      const Json* branch = &kept->as_array()[i];
      GODWIT_TRY(merger_.spend(rest, task.path));
      if (!rest.as_object().empty())
        branch = merger_.keep(Json::object({{"allOf", JsonArray{rest, *branch}}}));
      nodes.push_back(node_of(branch, fmt::format("{}/{}/{}", task.path, keyword, i), task.form));
    }
    return graph_.choice(std::move(nodes));
  }
  std::vector<uint32_t> nodes;
  if (const Json* nullable = flat.find("nullable"); nullable != nullptr && nullable->as_bool())
    nodes.push_back(graph_.common().null);
  if (const Json* list = flat.find("enum")) {
    GODWIT_ASSIGN(nodes.emplace_back(), values(list->as_array(), flat, task));
    return graph_.choice(std::move(nodes));
  }
  const auto types = types_of(flat);
  if (types.empty() && flat.find("type") == nullptr) nodes.push_back(any(task.form));
  for (const std::string& type : types) {
    GODWIT_ASSIGN(nodes.emplace_back(), of_type(type, flat, task));
  }
  return nodes.size() == 1 ? nodes[0] : graph_.choice(std::move(nodes));
}

Result<uint32_t> SchemaCompiler::of_type(const std::string& type, const Json& flat, const Task& task) {
  if (type == "null") return graph_.common().null;
  if (type == "boolean") return graph_.common().boolean;
  if (type == "string") return text(flat, task);
  if (type == "object") return object(flat, task);
  if (type == "array") return array(flat, task);
  return number(type == "integer", flat, task);
}

uint32_t SchemaCompiler::key(const std::string& name) {
  std::string text;
  append_json_string(text, name);
  return graph_.literal(text + ":");
}

Result<ObjectShape> SchemaCompiler::shape_of(const Json& flat, const std::string& path) {
  ObjectShape shape;
  const Json* properties = flat.find("properties");
  const Json* required = flat.find("required");
  const Json* additional = flat.find("additionalProperties");
  const bool closed =
      additional == nullptr ? properties != nullptr : additional->is_bool() && !additional->as_bool();
  if (!closed) shape.additional = additional == nullptr ? &kAnySchema : merger_.keep(*additional);
  if (properties != nullptr) {
    if (properties->as_object().size() > kMaxProperties)
      return schema_error("properties", path, "has {} members, the limit is {}",
                          properties->as_object().size(), kMaxProperties);
    const Json* kept = merger_.keep(*properties);
    for (const auto& [name, schema] : kept->as_object()) shape.properties.push_back({name, &schema, false});
  }
  if (required == nullptr) return shape;
  if (required->as_array().size() > kMaxProperties)
    return schema_error("required", path, "has {} names, the limit is {}", required->as_array().size(),
                        kMaxProperties);
  std::map<std::string_view, size_t> index;
  shape.properties.reserve(shape.properties.size() + required->as_array().size());
  for (size_t i = 0; i < shape.properties.size(); ++i) index.emplace(shape.properties[i].name, i);
  for (const Json& name : required->as_array()) {
    auto found = index.find(name.as_string());
    if (found != index.end()) {
      shape.properties[found->second].required = true;
      continue;
    }
    if (closed && additional != nullptr)
      return schema_error("required", path, "'{}' is not in properties and additionalProperties is false",
                          name.as_string());
    const Json* schema = shape.additional != nullptr ? shape.additional : &kAnySchema;
    shape.properties.push_back({name.as_string(), schema, true});
    index.emplace(shape.properties.back().name, shape.properties.size() - 1);
  }
  return shape;
}

Result<uint32_t> SchemaCompiler::object(const Json& flat, const Task& task) {
  GODWIT_ASSIGN(const ObjectShape shape, shape_of(flat, task.path));
  const auto& c = graph_.common();
  Node members{NodeKind::members};
  std::vector<std::string> names;
  for (const auto& property : shape.properties) {
    const uint32_t value =
        node_of(property.schema, fmt::format("{}/properties/{}", task.path, property.name), Form::json);
    members.children.push_back(graph_.sequence({key(property.name), c.gap, value}));
    members.required.push_back(property.required ? 1 : 0);
    std::string quoted;
    append_json_string(quoted, property.name);
    names.push_back(quoted.substr(1, quoted.size() - 2));
  }
  if (shape.additional != nullptr) {
    uint32_t name = c.string;
    if (!names.empty()) {
      name = graph_.add_dfa(without_literals(graph_.dfa_of(c.string), c.string_body, names));
    }
    const uint32_t value = node_of(shape.additional, task.path + "/additionalProperties", Form::json);
    members.rest = graph_.sequence({name, graph_.literal(":"), c.gap, value});
  }
  return graph_.sequence({c.open_object, graph_.add(std::move(members))});
}

Result<uint32_t> SchemaCompiler::array(const Json& flat, const Task& task) {
  const auto& c = graph_.common();
  Node node{NodeKind::items};
  if (const Json* min = flat.find("minItems")) node.min = static_cast<uint64_t>(min->as_integer());
  if (const Json* max = flat.find("maxItems")) node.max = static_cast<uint64_t>(max->as_integer());
  if (node.min > node.max)
    return schema_error("minItems", task.path, "{} is larger than maxItems {}", node.min, node.max);
  if (const Json* prefix = flat.find("prefixItems")) {
    if (prefix->as_array().size() > kMaxProperties)
      return schema_error("prefixItems", task.path, "has {} schemas, the limit is {}",
                          prefix->as_array().size(), kMaxProperties);
    const Json* kept = merger_.keep(*prefix);
    for (size_t i = 0; i < kept->as_array().size(); ++i) {
      node.children.push_back(
          node_of(&kept->as_array()[i], fmt::format("{}/prefixItems/{}", task.path, i), Form::json));
    }
  }
  const Json* items = flat.find("items");
  if (items != nullptr && items->is_bool() && !items->as_bool()) {
    if (node.min > node.children.size())
      return schema_error("minItems", task.path, "asks for {} items, but items is false after {}", node.min,
                          node.children.size());
  } else if (items != nullptr) {
    node.rest = node_of(merger_.keep(*items), task.path + "/items", Form::json);
  } else if (node.children.empty() || node.min > node.children.size()) {
    node.rest = any(Form::json);
  }
  return graph_.sequence({c.open_array, graph_.add(std::move(node))});
}

}  // namespace godwit::grammar
