// Schemas of strings, numbers and fixed values.
#include <algorithm>

#include "grammar/number_dfa.h"
#include "grammar/regex.h"
#include "grammar/schema_compiler.h"

namespace godwit::grammar {
namespace {

struct Format {
  std::string_view name;
  std::string_view pattern;
};

// The formats that are enforced; any other is an annotation.
#define GODWIT_DATE "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
#define GODWIT_TIME \
  "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define GODWIT_BYTE "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
constexpr Format kFormats[] = {
    {"date", "^" GODWIT_DATE "$"},
    {"time", "^" GODWIT_TIME "$"},
    {"date-time", "^" GODWIT_DATE "T" GODWIT_TIME "$"},
    {"uuid", "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"},
    {"ipv4", "^(" GODWIT_BYTE "\\.){3}" GODWIT_BYTE "$"},
};
#undef GODWIT_DATE
#undef GODWIT_TIME
#undef GODWIT_BYTE

std::string_view type_name(const Json& value) {
  switch (value.kind()) {
    case Json::Kind::null:
      return "null";
    case Json::Kind::boolean:
      return "boolean";
    case Json::Kind::integer:
    case Json::Kind::big_integer:
      return "integer";
    case Json::Kind::real:
      return "number";
    case Json::Kind::string:
      return "string";
    case Json::Kind::array:
      return "array";
    case Json::Kind::object:
      return "object";
  }
  return "";
}

bool has_type(const Json* types, const Json& value) {
  if (types == nullptr) return true;
  const JsonArray list = types->is_array() ? types->as_array() : JsonArray{*types};
  const std::string_view own = type_name(value);
  return std::any_of(list.begin(), list.end(), [&](const Json& type) {
    return type.as_string() == own || (type.as_string() == "number" && value.is_number()) ||
           (type.as_string() == "integer" && value.is_real() &&
            Json(static_cast<double>(static_cast<int64_t>(std::clamp(value.as_double(), -9e15, 9e15)))) ==
                value);
  });
}

}  // namespace

// The nodes of a fixed value, with JSON's freedom of white space.
uint32_t SchemaCompiler::constant(const Json& value) {
  const auto& c = graph_.common();
  if (value.is_array()) {
    Node items{NodeKind::items};
    for (const Json& item : value.as_array()) items.children.push_back(constant(item));
    items.min = items.max = items.children.size();
    return graph_.sequence({c.open_array, graph_.add(std::move(items))});
  }
  if (value.is_object()) {
    Node members{NodeKind::members};
    for (const auto& [name, member] : value.as_object()) {
      members.children.push_back(graph_.sequence({key(name), c.gap, constant(member)}));
      members.required.push_back(1);
    }
    return graph_.sequence({c.open_object, graph_.add(std::move(members))});
  }
  return graph_.literal(dump_json(value));
}

Result<uint32_t> SchemaCompiler::values(const JsonArray& list, const Json& flat, const Task& task) {
  if (list.size() > kMaxEnum)
    return schema_error("enum", task.path, "has {} values, the limit is {}", list.size(), kMaxEnum);
  for (const auto& member : flat.as_object()) {
    if (member.first != "enum" && member.first != "type" && member.first != "nullable" &&
        member.first != "format")
      return schema_error(member.first, task.path,
                          "cannot stand beside enum or const; leave out the values it forbids");
  }
  std::vector<uint32_t> nodes;
  std::vector<std::string> scalars;
  for (const Json& value : list) {
    if (!has_type(flat.find("type"), value)) continue;
    if (value.is_array() || value.is_object()) {
      nodes.push_back(constant(value));
    } else if (value.is_string() && task.form == Form::argument) {
      scalars.push_back(value.as_string());
    } else {
      scalars.push_back(dump_json(value));
    }
    if (!graph_.within_limits()) break;  // reported by run()
  }
  if (!scalars.empty()) nodes.push_back(graph_.add_dfa(ByteDfa::literals(scalars)));
  return graph_.choice(std::move(nodes));
}

Result<uint32_t> SchemaCompiler::text(const Json& flat, const Task& task) {
  const bool quoted = task.form == Form::json;
  const Json* min = flat.find("minLength");
  const Json* max = flat.find("maxLength");
  const uint64_t least = min != nullptr ? static_cast<uint64_t>(min->as_integer()) : 0;
  const uint64_t most = max != nullptr ? static_cast<uint64_t>(max->as_integer()) : kUnlimited;
  if (least > most)
    return schema_error("minLength", task.path, "{} is larger than maxLength {}", least, most);
  const RegexOptions options{quoted ? Spelling::json : Spelling::plain, true, quoted};
  std::vector<std::pair<std::string_view, std::string>> patterns;  // keyword, expression
  if (const Json* pattern = flat.find("pattern")) patterns.emplace_back("pattern", pattern->as_string());
  if (const Json* format = flat.find("format")) {
    for (const Format& known : kFormats) {
      if (known.name == format->as_string()) patterns.emplace_back("format", known.pattern);
    }
  }
  if (patterns.empty()) {
    if (least == 0 && most == kUnlimited) return quoted ? graph_.common().string : graph_.common().plain;
    return graph_.counted(least, most, quoted);
  }
  if (least > 0 || most != kUnlimited)
    patterns.emplace_back(
        max != nullptr ? "maxLength" : "minLength",
        most == kUnlimited ? fmt::format("^[^]{{{},}}$", least) : fmt::format("^[^]{{{},{}}}$", least, most));
  std::optional<ByteDfa> dfa;
  for (const auto& [keyword, expression] : patterns) {
    auto compiled = compile_regex(expression, options, {.budget = graph_.dfa_work()});
    if (!compiled.ok()) {
      if (keyword == "pattern") return schema_error(keyword, task.path, "{}", compiled.error().message);
      return schema_error(keyword, task.path, "beside pattern or format the limit is 4096 and {}",
                          compiled.error().message);
    }
    if (!dfa) {
      dfa = *std::move(compiled);
      continue;
    }
    bool too_large = false;
    dfa = intersect(*dfa, *compiled, DfaLimits{}.states, too_large);
    if (too_large)
      return schema_error(keyword, task.path, "together with pattern it needs more than {} automaton states",
                          DfaLimits{}.states);
    if (!dfa) return schema_error(keyword, task.path, "no string satisfies both it and pattern or format");
  }
  return graph_.add_dfa(*std::move(dfa));
}

Result<uint32_t> SchemaCompiler::number(bool integer, const Json& flat, const Task& task) {
  NumberRange range{.integer = integer};
  std::string_view keyword;
  auto tighten = [&](std::string_view name, bool exclusive, bool upper) {
    const Json* value = flat.find(name);
    if (value == nullptr) return;
    keyword = name;
    auto& bound = upper ? range.max : range.min;
    if (bound) {
      const double old = bound->value.as_double();
      const double now = value->as_double();
      if (now == old ? !exclusive : upper ? now > old : now < old) return;
    }
    bound = NumberBound{*value, exclusive};
  };
  tighten("minimum", false, false);
  tighten("exclusiveMinimum", true, false);
  tighten("maximum", false, true);
  tighten("exclusiveMaximum", true, true);
  if (keyword.empty()) return integer ? graph_.common().integer : graph_.common().number;
  auto dfa = number_dfa(range);
  if (!dfa)
    return schema_error(keyword, task.path, "no {} of at most {} digits lies within the bounds",
                        integer ? "integer" : "number", kMaxIntegerDigits);
  return graph_.add_dfa(*std::move(dfa));
}

}  // namespace godwit::grammar
