// Helpers of the template tests: render a source with a JSON context.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "chat/jinja/template.h"

namespace godwit::chat::jinja {

// The segments, or one data segment "error: …".
inline std::vector<Segment> segments_of(std::string_view source, std::string_view context = "{}",
                                        const Limits& limits = {}) {
  const auto failed = [](const Error& error) {
    return std::vector<Segment>{{"error: " + error.message, false}};
  };
  auto parsed = Template::parse(source, "t", limits);
  if (!parsed.ok()) return failed(parsed.error());
  auto json = parse_json(context);
  if (!json.ok()) return failed(json.error());
  std::vector<Variable> variables;
  for (const auto& [name, value] : json->as_object()) variables.emplace_back(name, &value);
  auto rendered = parsed->render(variables, 1767225600);
  return rendered.ok() ? std::move(rendered).value() : failed(rendered.error());
}

inline std::string render(std::string_view source, std::string_view context = "{}",
                          const Limits& limits = {}) {
  std::string out;
  for (const Segment& segment : segments_of(source, context, limits)) out += segment.text;
  return out;
}

// "T[template text]D[data]…"
inline std::string origins(std::string_view source, std::string_view context = "{}") {
  std::string out;
  for (const Segment& segment : segments_of(source, context)) {
    out += (segment.from_template ? "T[" : "D[") + segment.text + "]";
  }
  return out;
}

}  // namespace godwit::chat::jinja
