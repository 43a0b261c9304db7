// Names, literals and what stands in brackets.
#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "chat/jinja/parser.h"

namespace godwit::chat::jinja {
namespace {

using E = Expression::Kind;
using T = Token::Kind;

}  // namespace

ExpressionPtr Parser::primary() {
  const Token& token = peek();
  if (token.is("(")) return parenthesised();
  if (token.is("[")) return list();
  if (token.is("{")) return dict();
  auto node = make(E::constant, token.line);
  switch (token.kind) {
    case T::name: {
      const Token word = take();
      const std::string& name = word.value;
      if (name == "true" || name == "True") {
        node->literal = Value::of(true);
      } else if (name == "false" || name == "False") {
        node->literal = Value::of(false);
      } else if (name == "none" || name == "None") {
        node->literal = Value::none();
      } else {
        node->kind = E::name;
        node->symbol = intern(name);
        if (!macros_.empty()) {
          Statement& macro = *macros_.back();
          macro.takes_caller |= node->symbol == kCallerSymbol;
          macro.takes_varargs |= node->symbol == kVarargsSymbol;
          macro.takes_kwargs |= node->symbol == kKwargsSymbol;
        }
      }
      return node;
    }
    case T::string:
      while (peek().kind == T::string) node->text += take().value;  // adjacent literals are one
      node->literal = Value::of(source_text(node->text));
      return node;
    case T::integer:
    case T::real:
      return number();
    default:
      unexpected("an expression");
  }
}

ExpressionPtr Parser::number() {
  auto node = make(E::constant, peek().line);
  const Token token = take();
  node->text = token.value;
  if (token.kind == T::real) {
    node->literal = Value::of(std::strtod(node->text.c_str(), nullptr));
    return node;
  }
  node->text.erase(0, std::min(node->text.find_first_not_of('0'), node->text.size() - 1));
  int64_t value = 0;
  const auto [end, error] = std::from_chars(node->text.data(), node->text.data() + node->text.size(), value);
  node->literal = error == std::errc() ? Value::of(value) : Value::big(node->text);
  return node;
}

ExpressionPtr Parser::parenthesised() {
  const Nesting nesting(*this);
  const uint32_t line = take().line;
  if (accept(")")) return make(E::tuple, line);
  ExpressionPtr node = tuple_or_expression(true);
  expect(")");
  return node;
}

ExpressionPtr Parser::list() {
  const Nesting nesting(*this);
  auto node = make(E::list, take().line);
  while (!accept("]")) {
    if (!node->children.empty()) {
      expect(",");
      if (accept("]")) break;
    }
    adopt(*node, expression());
  }
  return node;
}

ExpressionPtr Parser::dict() {
  const Nesting nesting(*this);
  auto node = make(E::dict, take().line);
  while (!accept("}")) {
    if (!node->children.empty()) {
      expect(",");
      if (accept("}")) break;
    }
    adopt(*node, expression());
    expect(":");
    adopt(*node, expression());
  }
  return node;
}

}  // namespace godwit::chat::jinja
