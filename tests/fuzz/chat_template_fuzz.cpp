// A template and, after a zero byte, its variables as a JSON object: parse and render must end within the
// limits, and only with the errors they promise.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "chat/jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace jinja = godwit::chat::jinja;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t zero = text.find('\0');
  jinja::Limits limits;  // small, so that a run stays in milliseconds
  limits.steps = 100'000;
  limits.output_bytes = 1 << 20;
  limits.heap_bytes = 8 << 20;
  limits.range_items = 1000;
  const auto parsed = jinja::Template::parse(text.substr(0, zero), "fuzz", limits);
  if (!parsed.ok()) {
    if (parsed.error().code != godwit::ErrorCode::data_refused || parsed.error().message.empty())
      std::abort();
    return 0;
  }
  auto context = godwit::parse_json(zero == text.npos ? "{}" : text.substr(zero + 1));
  if (!context.ok() || !context->is_object()) return 0;
  std::vector<jinja::Variable> variables;
  for (const auto& [name, value] : context->as_object()) variables.emplace_back(name, &value);
  const auto rendered = parsed->render(variables, 0);
  if (!rendered.ok()) {
    if (rendered.error().message.empty()) std::abort();
    return 0;
  }
  size_t bytes = 0;
  for (size_t i = 0; i < rendered->size(); ++i) {
    bytes += (*rendered)[i].text.size();
    if ((*rendered)[i].text.empty()) std::abort();
    if (i > 0 && (*rendered)[i].from_template == (*rendered)[i - 1].from_template) std::abort();
  }
  if (bytes > limits.output_bytes) std::abort();
  return 0;
}
