#include "chat/jinja/access.h"
#include "chat/jinja/failure.h"
#include "chat/jinja/interpreter.h"
#include "chat/jinja/parser.h"

namespace godwit::chat::jinja {

// `caller` is the body of a call block, or null.
Value Interpreter::eval_call(const Expression& e, Scope& scope, const Value* caller) {
  const Expression& target = *e.children[0];
  Value self;
  MethodBody method = nullptr;
  Value callee;
  if (target.kind == Expression::Kind::attribute) {
    // s.strip() needs no bound-method object.
    self = eval(*target.children[0], scope);
    method = find_method(self.kind, target.text);
    if (method == nullptr) callee = get_attribute(runtime_, self, target.text);
  } else {
    callee = eval(target, scope);
  }
  Arguments arguments = eval_arguments(e, scope);
  if (caller != nullptr) arguments.keywords.emplace_back("caller", *caller);
  runtime_.line = e.line;
  const Value result = method != nullptr ? method(runtime_, self, arguments) : call(callee, arguments);
  runtime_.line = e.line;
  return result;
}

Value Interpreter::call(const Value& callee, Arguments& arguments) {
  switch (callee.kind) {
    case Kind::macro:
      return call_macro(*callee.macro, arguments);
    case Kind::function:
      return callee.function->body(runtime_, arguments);
    case Kind::method:
      return callee.method->body(runtime_, callee.method->self, arguments);
    case Kind::loop: {
      if (!callee.loop->recurse) fail("the loop must have the 'recursive' marker to be called");
      arguments.bind("loop", {"iterable"}, 1);
      return callee.loop->recurse(*arguments.find(0));
    }
    case Kind::undefined:
      fail_undefined(callee);
    default:
      fail("'{}' object is not callable", type_name(callee));
  }
}

Value Interpreter::call_macro(const Macro& macro, Arguments& arguments) {
  const Depth depth(runtime_);
  Scope& frame = runtime_.heap.scope(macro.scope);
  bind_macro(macro, arguments, frame);
  Buffer& out = runtime_.heap.buffer();
  exec(macro.definition->body, frame, out);
  return Value::of(out.whole());
}

void Interpreter::bind_macro(const Macro& macro, Arguments& arguments, Scope& frame) {
  const Statement& definition = *macro.definition;
  const auto& parameters = definition.parameters;
  const size_t given = std::min(arguments.positional.size(), parameters.size());
  std::vector<bool> bound(parameters.size(), false);
  for (size_t i = 0; i < given; ++i) {
    frame.set(parameters[i].symbol, arguments.positional[i]);
    bound[i] = true;
  }
  Value caller = Value::undefined("caller");
  Dict& kwargs = runtime_.heap.dict();
  for (const auto& [name, value] : arguments.keywords) {
    size_t i = 0;
    while (i < parameters.size() && parameters[i].name != name) ++i;
    if (i < parameters.size()) {
      if (bound[i]) fail("macro '{}' got two values for argument '{}'", macro.name, name);
      frame.set(parameters[i].symbol, value);
      bound[i] = true;
    } else if (name == "caller" && definition.takes_caller) {
      caller = value;
    } else if (definition.takes_kwargs) {
      runtime_.heap.set(kwargs, Value::of(source_text(name)), value);
    } else {
      fail("macro '{}' takes no keyword argument '{}'", macro.name, name);
    }
  }
  if (arguments.positional.size() > given && !definition.takes_varargs) {
    fail("macro '{}' takes not more than {} argument(s)", macro.name, parameters.size());
  }
  if (definition.takes_caller) frame.set(kCallerSymbol, caller);
  if (definition.takes_kwargs) frame.set(kKwargsSymbol, Value::of(&kwargs));
  if (definition.takes_varargs) {
    Sequence& rest = runtime_.heap.sequence();
    for (size_t i = given; i < arguments.positional.size(); ++i)
      runtime_.heap.add(rest, arguments.positional[i]);
    frame.set(kVarargsSymbol, Value::of(Kind::tuple, &rest));
  }
  // Missing arguments must shadow outer names, and a default may read the parameters before it.
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (bound[i]) continue;
    const Parameter& parameter = parameters[i];
    frame.set(parameter.symbol,
              parameter.fallback ? eval(*parameter.fallback, frame) : Value::undefined(parameter.name));
  }
}

}  // namespace godwit::chat::jinja
