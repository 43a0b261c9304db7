// Renders templates for template_parity.py: one JSON object a line on stdin, one a line on stdout.
//   in:  {"template": text} sets the template of the lines that follow; {"context": {variables}, "now":
//   seconds} renders out: {"text": text, "segments": [[text, from_template] …]} or {"error": message}
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "chat/jinja/template.h"

namespace {

namespace jinja = godwit::chat::jinja;
using godwit::Json;

Json error(const std::string& message) {
  return Json::object({{"error", Json(message)}});
}

Json render(const jinja::Template& chat_template, const Json& request) {
  const Json* context = request.find("context");
  if (context == nullptr || !context->is_object()) return error("no context");
  std::vector<jinja::Variable> variables;
  for (const auto& [name, value] : context->as_object()) variables.emplace_back(name, &value);
  const Json* now = request.find("now");
  const auto rendered = chat_template.render(
      variables, now == nullptr ? std::nullopt : std::optional<std::time_t>(now->as_integer()));
  if (!rendered.ok()) return error(rendered.error().message);
  std::string text;
  godwit::JsonArray segments;
  for (const auto& segment : *rendered) {
    text += segment.text;
    segments.push_back(Json(godwit::JsonArray{Json(segment.text), Json(segment.from_template)}));
  }
  return Json::object({{"text", Json(text)}, {"segments", Json(std::move(segments))}});
}

}  // namespace

int main() {
  std::optional<jinja::Template> current;
  std::string template_error = "no template";
  for (std::string line; std::getline(std::cin, line);) {
    const auto request = godwit::parse_json(line);
    if (!request.ok()) {
      std::cerr << "template_tool: " << request.error().message << '\n';
      return 1;
    }
    if (const Json* source = request->find("template")) {
      auto parsed = jinja::Template::parse(source->as_string(), "template");
      current.reset();
      if (parsed.ok()) {
        current.emplace(std::move(parsed).value());
      } else {
        template_error = parsed.error().message;
      }
      continue;
    }
    std::cout << godwit::dump_json(current ? render(*current, *request) : error(template_error)) << '\n';
  }
  return 0;
}
