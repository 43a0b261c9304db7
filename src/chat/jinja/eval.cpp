#include "chat/jinja/access.h"
#include "chat/jinja/failure.h"
#include "chat/jinja/filters.h"
#include "chat/jinja/interpreter.h"
#include "chat/jinja/operators.h"

namespace godwit::chat::jinja {

using E = Expression::Kind;

Value Interpreter::eval(const Expression& e, Scope& scope) {
  const Depth depth(runtime_);
  runtime_.step();
  runtime_.line = e.line;
  switch (e.kind) {
    case E::constant:
      return e.literal;
    case E::name:
      return eval_name(e, scope);
    case E::list:
    case E::tuple: {
      Sequence& out = runtime_.heap.sequence(e.children.size());
      for (const ExpressionPtr& child : e.children) runtime_.heap.add(out, eval(*child, scope));
      return Value::of(e.kind == E::list ? Kind::list : Kind::tuple, &out);
    }
    case E::dict:
      return eval_dict(e, scope);
    case E::attribute:
      return get_attribute(runtime_, eval(*e.children[0], scope), e.text);
    case E::item: {
      const Value object = eval(*e.children[0], scope);
      return get_item(runtime_, object, eval(*e.children[1], scope));
    }
    case E::slice:
      return eval_slice(e, scope);
    case E::call:
      return eval_call(e, scope, nullptr);
    case E::filter:
      return eval_filter(e, scope, nullptr);
    case E::test:
      return eval_test(e, scope);
    case E::unary:
      return eval_unary(e, scope);
    case E::binary:
      return eval_binary(e, scope);
    case E::comparison:
      return eval_comparison(e, scope);
    case E::conditional:
      break;
  }
  if (is_true(eval(*e.children[1], scope))) return eval(*e.children[0], scope);
  return e.children[2] ? eval(*e.children[2], scope) : Value::undefined("the missing else of an inline if");
}

Value Interpreter::eval_name(const Expression& e, Scope& scope) {
  const Value* value = scope.find(e.symbol);
  return value != nullptr ? *value : Value::undefined(tree_.names[e.symbol]);
}

Value Interpreter::eval_dict(const Expression& e, Scope& scope) {
  Dict& out = runtime_.heap.dict();
  for (size_t i = 0; i < e.children.size(); i += 2) {
    const Value key = eval(*e.children[i], scope);
    if (key.kind == Kind::list || key.is_dict()) fail("unhashable type: '{}'", type_name(key));
    runtime_.heap.set(out, key, eval(*e.children[i + 1], scope));
  }
  return Value::of(&out);
}

Value Interpreter::eval_slice(const Expression& e, Scope& scope) {
  const Value object = eval(*e.children[0], scope);
  Value part[3];
  for (size_t i = 0; i < 3; ++i)
    part[i] = e.children[i + 1] ? eval(*e.children[i + 1], scope) : Value::none();
  return get_slice(runtime_, object, part[0], part[1], part[2]);
}

Value Interpreter::eval_unary(const Expression& e, Scope& scope) {
  const Value v = eval(*e.children[0], scope);
  return e.op == Operator::logical_not ? Value::of(!is_true(v)) : apply_sign(e.op, v);
}

Value Interpreter::eval_binary(const Expression& e, Scope& scope) {
  const Value left = eval(*e.children[0], scope);
  if (e.op == Operator::logical_and) return is_true(left) ? eval(*e.children[1], scope) : left;
  if (e.op == Operator::logical_or) return is_true(left) ? left : eval(*e.children[1], scope);
  return apply_binary(runtime_, e.op, left, eval(*e.children[1], scope));
}

Value Interpreter::eval_comparison(const Expression& e, Scope& scope) {
  Value left = eval(*e.children[0], scope);
  for (size_t i = 0; i < e.operators.size(); ++i) {
    const Value right = eval(*e.children[i + 1], scope);
    if (!compare(runtime_, e.operators[i], left, right)) return Value::of(false);
    left = right;
  }
  return Value::of(true);
}

Arguments Interpreter::eval_arguments(const Expression& e, Scope& scope) {
  Arguments out;
  out.positional.reserve(e.children.size() - 1);
  for (size_t i = 1; i < e.children.size(); ++i) out.positional.push_back(eval(*e.children[i], scope));
  for (const Keyword& keyword : e.keywords)
    out.keywords.emplace_back(keyword.name, eval(*keyword.value, scope));
  return out;
}

Value Interpreter::eval_filter(const Expression& e, Scope& scope, const Value* block_input) {
  Value input;
  if (block_input == nullptr) {
    input = eval(*e.children[0], scope);
  } else {
    input = e.children[0] ? eval_filter(*e.children[0], scope, block_input) : *block_input;
  }
  Arguments arguments = eval_arguments(e, scope);
  return apply_filter(runtime_, e.text, input, arguments);
}

Value Interpreter::eval_test(const Expression& e, Scope& scope) {
  const Value input = eval(*e.children[0], scope);
  Arguments arguments = eval_arguments(e, scope);
  return Value::of(apply_test(runtime_, e.text, input, arguments));
}

}  // namespace godwit::chat::jinja
