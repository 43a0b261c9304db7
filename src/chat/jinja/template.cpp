#include "chat/jinja/template.h"

#include <algorithm>
#include <new>

#include "chat/jinja/failure.h"
#include "chat/jinja/functions.h"
#include "chat/jinja/interpreter.h"
#include "chat/jinja/json_bridge.h"
#include "chat/jinja/parser.h"

namespace godwit::chat::jinja {

Template::Template(std::unique_ptr<Tree> tree, std::string name, const Limits& limits)
    : tree_(std::move(tree)), name_(std::move(name)), limits_(limits) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Result<Template> Template::parse(std::string_view source, std::string name, const Limits& limits) {
  try {
    auto tree = std::make_unique<Tree>(Parser(lex(source, limits), limits).run());
    return Template(std::move(tree), std::move(name), limits);
  } catch (const Failure& failure) {
    return make_error(ErrorCode::data_refused, name, "{}:{}: {}", name, failure.line, failure.message);
  }
}

Result<std::vector<Segment>> Template::render(std::span<const Variable> variables,
                                              std::optional<std::time_t> now) const {
  Runtime runtime(limits_, now);
  try {
    Scope& globals = runtime.heap.scope(nullptr);
    Scope& context = runtime.heap.scope(&globals);
    for (Symbol symbol = 0; symbol < tree_->names.size(); ++symbol) {
      const std::string& name = tree_->names[symbol];
      const Value function = global_function(name);
      if (!function.is_undefined()) globals.set(symbol, function);
      const auto last = std::find_if(variables.rbegin(), variables.rend(),
                                     [&](const Variable& v) { return v.first == name; });
      if (last != variables.rend()) context.set(symbol, from_json(runtime, *last->second));
    }
    Buffer& out = runtime.heap.buffer();
    Interpreter(*tree_, runtime).run(runtime.heap.scope(&context), out);
    std::vector<Segment> segments;
    segments.reserve(out.changes.size() + 1);
    for_each_run(out.whole(), [&](std::string_view run, bool from_template) {
      segments.push_back({std::string(run), from_template});
    });
    return segments;
  } catch (const Failure& failure) {
    const uint32_t line = failure.line != 0 ? failure.line : runtime.line;
    return make_error(ErrorCode::invalid_request, "messages", "{}:{}: {}", name_, line, failure.message);
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::unavailable, "messages", "{}: not enough memory to render the template",
                      name_);
  }
}

}  // namespace godwit::chat::jinja
