// GrammarSpec ▶ Grammar: the content, the calls, and how they go together.
#include <algorithm>
#include <set>

#include "grammar/grammar.h"
#include "grammar/regex.h"
#include "grammar/schema_compiler.h"
#include "tokenizer/utf8.h"

namespace godwit::grammar {
namespace {

using Content = GrammarSpec::Content;

constexpr size_t kMaxChoices = 10'000;
constexpr size_t kMaxChoiceBytes = 1 << 20;
constexpr size_t kMaxTools = 512;
constexpr size_t kMaxToolName = 256;  // bytes, as in the output parser

Result<uint32_t> choice_node(Graph& graph, const std::vector<std::string>& choices) {
  size_t bytes = 0;
  for (const std::string& choice : choices) {
    bytes += choice.size();
    if (!tokenizer::is_utf8(choice))
      return make_error(ErrorCode::invalid_request, "choice", "a choice is not valid UTF-8");
  }
  if (choices.empty() || choices.size() > kMaxChoices || bytes > kMaxChoiceBytes)
    return make_error(ErrorCode::invalid_request, "choice",
                      "there are {} choices of {} bytes in all; give 1 to {} of at most {} bytes",
                      choices.size(), bytes, kMaxChoices, kMaxChoiceBytes);
  return graph.add_dfa(ByteDfa::literals(choices));
}

Result<uint32_t> content_node(Graph& graph, const GrammarSpec& spec) {
  const auto& common = graph.common();
  switch (spec.content) {
    case Content::none:
      break;
    case Content::any_text:
      return common.plain;
    case Content::json_object:
      return graph.sequence({common.gap, any_object(graph)});
    case Content::json_schema: {
      SchemaCompiler compiler(graph, spec.schema);
      GODWIT_ASSIGN(const uint32_t value, compiler.compile());
      return graph.sequence({common.gap, value});
    }
    case Content::regex: {
      auto dfa = compile_regex(spec.regex, {});
      if (!dfa.ok()) return make_error(ErrorCode::invalid_request, "regex", "regex: {}", dfa.error().message);
      return graph.add_dfa(*std::move(dfa));
    }
    case Content::choice:
      return choice_node(graph, spec.choices);
  }
  return kNone;
}

Result<uint32_t> call_node(Graph& graph, const GrammarSpec& spec, const tokenizer::ControlIds& ids) {
  const int32_t needed[] = {ids.tool_call_open, ids.tool_call_close, ids.arg_key_open,
                            ids.arg_key_close,  ids.arg_value_open,  ids.arg_value_close};
  if (std::find(std::begin(needed), std::end(needed), -1) != std::end(needed))
    return make_error(ErrorCode::invalid_request, "tools",
                      "this model's tokenizer lacks the tool call tokens that a forced call is made of");
  if (spec.tools.size() > kMaxTools)
    return make_error(ErrorCode::invalid_request, "tools",
                      "there are {} tools, the limit for forced calls is {}", spec.tools.size(), kMaxTools);
  static const Json kAnything{JsonObject()};
  std::vector<uint32_t> alternatives;
  std::set<std::string_view> names;
  for (size_t i = 0; i < spec.tools.size(); ++i) {
    const ToolSpec& tool = spec.tools[i];
    if (tool.name.empty() || tool.name.size() > kMaxToolName || !tokenizer::is_utf8(tool.name))
      return make_error(ErrorCode::invalid_request, fmt::format("tools[{}].name", i),
                        "a tool's name must be UTF-8 of 1 to {} bytes, not {}", kMaxToolName,
                        tool.name.size());
    if (!names.insert(tool.name).second)
      continue;  // of equal names the first counts, as in the output parser
    const bool open = !tool.constrained || tool.parameters.is_null();
    SchemaCompiler compiler(graph, open ? kAnything : tool.parameters);
    auto arguments = compiler.compile_arguments(
        {ids.arg_key_open, ids.arg_key_close, ids.arg_value_open, ids.arg_value_close});
    if (!arguments.ok()) {
      Error& error = arguments.error();
      error.field = fmt::format("tools[{}].parameters", i);
      error.message = fmt::format("tool '{}': {}", tool.name, error.message);
      return std::move(error);
    }
    alternatives.push_back(graph.sequence({graph.literal(tool.name), *arguments}));
  }
  return graph.sequence({graph.token(ids.tool_call_open), graph.choice(std::move(alternatives)),
                         graph.token(ids.tool_call_close)});
}

Result<uint32_t> root_node(Graph& graph, const GrammarSpec& spec, const tokenizer::ControlIds& ids) {
  GODWIT_ASSIGN(const uint32_t content, content_node(graph, spec));
  if (spec.tools.empty()) {
    if (content == kNone)
      return make_error(ErrorCode::invalid_request, "tools",
                        "a grammar needs a content format or at least one tool");
    return content;
  }
  GODWIT_ASSIGN(uint32_t calls, call_node(graph, spec, ids));
  if (spec.parallel_calls) {
    const uint32_t more = graph.choice({});
    calls = graph.sequence({calls, more});
    Node node{NodeKind::choice};
    node.children = {graph.common().empty, calls};
    graph.set(more, std::move(node));
  }
  if (content == kNone) return calls;
  if (spec.content == Content::any_text)
    return graph.sequence({content, graph.choice({graph.common().empty, calls})});
  return graph.choice({content, calls});
}

}  // namespace

Result<uint32_t> SchemaCompiler::compile_arguments(const ArgumentTags& tags) {
  GODWIT_TRY(check_size());
  GODWIT_TRY(check_keywords(root_, "#"));
  GODWIT_ASSIGN(const Json flat, merger_.flatten(root_, "#"));
  for (std::string_view keyword : {"anyOf", "oneOf", "enum"}) {
    if (flat.find(keyword) != nullptr)
      return schema_error(keyword, "#", "a tool's parameters must be one object schema with properties");
  }
  if (const Json* type = flat.find("type"); type != nullptr && !(*type == Json("object")))
    return schema_error("type", "#", "a tool's parameters must be of type object");
  GODWIT_ASSIGN(const ObjectShape shape, shape_of(flat, "#"));
  const uint32_t key_open = graph_.token(tags.key_open);
  const uint32_t key_close = graph_.token(tags.key_close);
  const uint32_t value_open = graph_.token(tags.value_open);
  const uint32_t value_close = graph_.token(tags.value_close);
  auto pair = [&](uint32_t name, const Json* schema, const std::string& path) {
    const uint32_t value = node_of(schema, path, Form::argument);
    return graph_.sequence({key_open, name, key_close, value_open, value, value_close});
  };
  Node node{NodeKind::arguments};
  std::vector<std::string> names{""};  // no key is empty
  for (const auto& property : shape.properties) {
    if (property.name.empty())
      return schema_error("properties", "#", "a tool's argument cannot have an empty name");
    names.push_back(property.name);
    node.children.push_back(
        pair(graph_.literal(property.name), property.schema, fmt::format("#/properties/{}", property.name)));
    node.required.push_back(property.required ? 1 : 0);
  }
  if (shape.additional != nullptr) {
    const uint32_t name = graph_.add_dfa(without_literals(graph_.dfa_of(graph_.common().plain), 0, names));
    node.rest = pair(name, shape.additional, "#/additionalProperties");
  }
  GODWIT_TRY(run());
  if (node.children.size() <= 64) return graph_.add(std::move(node));
  // Beyond what Item::arg can count: in the schema's order.
  std::vector<uint32_t> ordered;
  for (size_t i = 0; i < node.children.size(); ++i) {
    ordered.push_back(node.required[i] != 0 ? node.children[i]
                                            : graph_.choice({node.children[i], graph_.common().empty}));
  }
  node.children.clear();
  node.required.clear();
  ordered.push_back(graph_.add(std::move(node)));
  return graph_.sequence(std::move(ordered));
}

Result<std::shared_ptr<const Grammar>> compile(const GrammarSpec& spec,
                                               std::shared_ptr<const TokenIndex> index) {
  Graph graph;
  GODWIT_ASSIGN(graph.root, root_node(graph, spec, index->control()));
  if (!graph.finish())
    return make_error(
        ErrorCode::invalid_request, spec.tools.empty() ? "schema" : "tools",
        "no output of at most {} nested containers satisfies the schema: something it requires is false, "
        "empty or endlessly recursive",
        graph.limits().depth);
  return std::shared_ptr<const Grammar>(std::make_shared<Grammar>(std::move(graph), std::move(index)));
}

}  // namespace godwit::grammar
