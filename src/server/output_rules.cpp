#include "server/output_rules.h"

#include <algorithm>
#include <limits>

namespace godwit::server {
namespace {

using chat::ToolChoice;
using Content = grammar::GrammarSpec::Content;

// The tools that go into the grammar, and where each stands in the request.
std::vector<size_t> add_tools(const OutputWish& wish, grammar::GrammarSpec& spec) {
  std::vector<size_t> places;
  if (wish.declared == nullptr || wish.tools.choice == ToolChoice::none) return places;
  const bool forced = wish.tools.choice == ToolChoice::required || wish.tools.choice == ToolChoice::named;
  const auto& names = wish.tools.names;
  for (const chat::Tool& tool : wish.declared->all()) {
    if (!names.empty() && std::find(names.begin(), names.end(), tool.name) == names.end()) continue;
    spec.tools.push_back({tool.name, tool.parameters, forced || tool.strict});
    places.push_back(tool.index);
  }
  return places;
}

// The grammar's field in the words of the request.
Error translate(Error error, const OutputWish& wish, const std::vector<size_t>& places) {
  constexpr std::string_view kTools = "tools[";
  if (error.field == "schema" || error.field == "regex" || error.field == "choice") {
    error.field = wish.format.field;
    error.message = fmt::format("{}: {}", error.field, error.message);
  } else if (error.field.starts_with(kTools)) {
    const size_t own = std::strtoul(error.field.c_str() + kTools.size(), nullptr, 10);
    const size_t close = error.field.find(']');
    if (own < places.size() && close != error.field.npos)
      error.field = fmt::format("tools[{}].function{}", places[own], error.field.substr(close + 1));
  }
  return error;
}

}  // namespace

Result<engine::OutputRules> make_output_rules(const ServingModel& model, const OutputWish& wish) {
  engine::OutputRules rules;
  rules.thinking = wish.thinking;
  rules.think_open = model.control_ids.think_open;
  rules.think_close = model.control_ids.think_close;
  if (wish.declared != nullptr && wish.tools.choice != ToolChoice::none)
    rules.tool_call_open = model.control_ids.tool_call_open;
  if (rules.think_close >= 0) rules.thinking_budget = wish.thinking_budget;

  grammar::GrammarSpec spec;
  spec.content = wish.format.content;
  const std::vector<size_t> places = add_tools(wish, spec);
  const bool forced = !spec.tools.empty() &&
                      (wish.tools.choice == ToolChoice::required || wish.tools.choice == ToolChoice::named);
  if (forced) spec.content = Content::none;  // a forced call wins over a format
  // Free text with any calls of known functions is what the model does by itself.
  const bool strict = std::any_of(spec.tools.begin(), spec.tools.end(),
                                  [](const grammar::ToolSpec& tool) { return tool.constrained; });
  if (spec.content == Content::any_text && !strict && wish.tools.names.empty()) return rules;
  if (spec.content == Content::json_schema) spec.schema = wish.format.schema;
  if (spec.content == Content::regex) spec.regex = wish.format.regex;
  if (spec.content == Content::choice) spec.choices = wish.format.choices;
  spec.parallel_calls = wish.tools.parallel;
  auto grammar = model.grammars->get(spec);
  if (!grammar) return translate(std::move(grammar.error()), wish, places);
  rules.grammar = *std::move(grammar);
  return rules;
}

void adapt_to_rules(const engine::OutputRules& rules, engine::StopRules& stop) {
  if (rules.grammar == nullptr || !stop.ignore_eos) return;
  stop.ignore_eos = false;
  stop.min_tokens = std::numeric_limits<int64_t>::max();
}

}  // namespace godwit::server
