#include "chat/jinja/access.h"
#include "chat/jinja/failure.h"
#include "chat/jinja/interpreter.h"
#include "chat/jinja/parser.h"
#include "chat/jinja/print.h"

namespace godwit::chat::jinja {

using S = Statement::Kind;

Interpreter::Flow Interpreter::exec(const Block& block, Scope& scope, Buffer& out) {
  const Depth depth(runtime_);
  for (const auto& statement : block) {
    if (const Flow flow = exec(*statement, scope, out); flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::exec(const Statement& s, Scope& scope, Buffer& out) {
  runtime_.step();
  runtime_.line = s.line;
  switch (s.kind) {
    case S::text:
      emit(out, source_text(s.text));
      break;
    case S::print:
      emit(out, eval(*s.expression, scope));
      break;
    case S::branch:
      return exec_branch(s, scope, out);
    case S::loop:
      return exec_loop(s, eval(*s.expression, scope), scope, out, 0);
    case S::set:
      assign(*s.target, eval(*s.expression, scope), scope);
      break;
    case S::set_block:
    case S::filter:
      return exec_captured(s, scope, out);
    case S::macro:
      scope.set(s.symbol, make_macro(s, scope));
      break;
    case S::call:
      exec_call_block(s, scope, out);
      break;
    case S::with:
      return exec_with(s, scope, out);
    case S::scope:
      return exec(s.body, runtime_.heap.scope(&scope), out);
    case S::break_loop:
      return Flow::break_loop;
    case S::continue_loop:
      return Flow::continue_loop;
  }
  return Flow::normal;
}

void Interpreter::emit(Buffer& out, const Value& value) {
  if (!value.is_undefined()) emit(out, to_text(runtime_, value));
}

void Interpreter::emit(Buffer& out, const Text& text) {
  if (text.size > runtime_.limits.output_bytes - std::min(out.bytes.size(), runtime_.limits.output_bytes)) {
    fail("the output is longer than {} bytes", runtime_.limits.output_bytes);
  }
  runtime_.scan(text.size);
  runtime_.heap.append(out, text);
}

Interpreter::Flow Interpreter::exec_branch(const Statement& s, Scope& scope, Buffer& out) {
  for (const Branch& branch : s.branches) {
    if (!branch.condition || is_true(eval(*branch.condition, scope))) return exec(branch.body, scope, out);
  }
  return Flow::normal;
}

// Everything captured lives as long as the render, so a `loop` that a template keeps stays usable.
void Interpreter::prepare_fetch(Loop& loop, const Statement& s, const Value& items, Scope& scope) {
  Sequence* source = &iterate(runtime_, items);
  const bool is_iterator = items.kind == Kind::iterator;
  size_t position = is_iterator ? source->next : 0;
  loop.fetch = [this, &loop, &s, &scope, source, is_iterator, position]() mutable {
    while (position < source->items.size()) {
      runtime_.step();
      const Value item = source->items[position++];
      if (is_iterator) source->next = position;
      if (s.condition) {
        Scope& frame = runtime_.heap.scope(&scope);
        assign(*s.target, item, frame);
        if (!is_true(eval(*s.condition, frame))) continue;
      }
      runtime_.heap.charge(sizeof(Value));
      loop.ahead.push_back(item);
      return true;
    }
    return false;
  };
}

Interpreter::Flow Interpreter::exec_loop(const Statement& s, const Value& items, Scope& scope, Buffer& out,
                                         size_t depth0) {
  const Depth depth(runtime_);
  Loop& loop = runtime_.heap.loop();
  loop.depth0 = depth0;
  prepare_fetch(loop, s, items, scope);
  if (s.recursive) {
    loop.recurse = [this, &s, &scope, depth0](const Value& inner) {
      Buffer& body = runtime_.heap.buffer();
      exec_loop(s, inner, scope, body, depth0 + 1);
      return Value::of(body.whole());
    };
  }
  Value handle;
  handle.kind = Kind::loop;
  handle.loop = &loop;
  while (!loop.ahead.empty() || loop.fetch()) {
    loop.previous = loop.current;
    loop.current = loop.ahead.front();
    loop.ahead.pop_front();
    ++loop.index0;
    Scope& frame = runtime_.heap.scope(&scope);  // so that a `set` is gone in the next iteration
    frame.set(kLoopSymbol, handle);
    assign(*s.target, loop.current, frame);
    if (exec(s.body, frame, out) == Flow::break_loop) break;
  }
  if (loop.index0 < 0 && !s.otherwise.empty()) return exec(s.otherwise, runtime_.heap.scope(&scope), out);
  return Flow::normal;
}

// {% set x %}…{% endset %} and {% filter f %}…{% endfilter %}: the body's output becomes a value.
Interpreter::Flow Interpreter::exec_captured(const Statement& s, Scope& scope, Buffer& out) {
  Buffer& body = runtime_.heap.buffer();
  const Flow flow = exec(s.body, runtime_.heap.scope(&scope), body);
  if (flow != Flow::normal) return flow;
  Value value = Value::of(body.whole());
  if (s.expression) value = eval_filter(*s.expression, scope, &value);
  if (s.kind == S::set_block) {
    assign(*s.target, value, scope);
  } else {
    emit(out, value);
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::exec_with(const Statement& s, Scope& scope, Buffer& out) {
  Scope& frame = runtime_.heap.scope(&scope);
  for (size_t i = 0; i < s.targets.size(); ++i) assign(*s.targets[i], eval(*s.values[i], scope), frame);
  return exec(s.body, frame, out);
}

void Interpreter::exec_call_block(const Statement& s, Scope& scope, Buffer& out) {
  const Value caller = make_macro(s, scope);
  emit(out, eval_call(*s.expression, scope, &caller));
}

Value Interpreter::make_macro(const Statement& definition, Scope& scope) {
  Macro& macro = runtime_.heap.macro();
  macro = {&definition, &scope, definition.text};
  Value v;
  v.kind = Kind::macro;
  v.macro = &macro;
  return v;
}

void Interpreter::assign(const Expression& target, const Value& value, Scope& scope) {
  switch (target.kind) {
    case Expression::Kind::name:
      runtime_.heap.charge(sizeof(Value));
      scope.set(target.symbol, value);
      return;
    case Expression::Kind::tuple:
      return unpack(target, value, scope);
    default:
      break;
  }
  const Value object = eval(*target.children[0], scope);
  if (object.kind != Kind::name_space)
    fail("cannot assign attribute '{}' on non-namespace object", target.text);
  runtime_.heap.set(*object.dict, Value::of(source_text(target.text)), value);
}

void Interpreter::unpack(const Expression& target, const Value& value, Scope& scope) {
  if (value.is_undefined()) fail_undefined(value);
  const Sequence& items = collect(runtime_, value);
  const size_t expected = target.children.size();
  if (items.items.size() > expected) fail("too many values to unpack (expected {})", expected);
  if (items.items.size() < expected) {
    fail("not enough values to unpack (expected {}, got {})", expected, items.items.size());
  }
  for (size_t i = 0; i < expected; ++i) assign(*target.children[i], items.items[i], scope);
}

}  // namespace godwit::chat::jinja
