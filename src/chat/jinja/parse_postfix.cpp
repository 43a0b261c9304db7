// What follows a primary expression: members, indices, calls, filters and tests.
#include <algorithm>

#include "chat/jinja/failure.h"
#include "chat/jinja/parser.h"

namespace godwit::chat::jinja {
namespace {

using E = Expression::Kind;
using T = Token::Kind;

}  // namespace

ExpressionPtr Parser::postfix(ExpressionPtr node) {
  while (true) {
    if (peek().is(".") || peek().is("[")) {
      node = subscript(std::move(node));
    } else if (peek().is("(")) {
      auto call = make(E::call, peek().line);
      adopt(*call, std::move(node));
      arguments(*call);
      node = std::move(call);
    } else {
      return node;
    }
  }
}

ExpressionPtr Parser::filters(ExpressionPtr node) {
  while (true) {
    if (accept("|")) {
      node = filter(std::move(node));
    } else if (peek().is_name("is")) {
      node = test(std::move(node));
    } else if (peek().is("(")) {
      auto call = make(E::call, peek().line);
      adopt(*call, std::move(node));
      arguments(*call);
      node = std::move(call);
    } else {
      return node;
    }
  }
}

std::string Parser::dotted_name() {
  std::string name = expect_name("a name");
  while (accept(".")) name += "." + expect_name("a name");
  return name;
}

ExpressionPtr Parser::filter(ExpressionPtr input) {
  auto node = make(E::filter, peek().line);
  node->text = dotted_name();
  adopt(*node, std::move(input));
  if (peek().is("(")) arguments(*node);
  return node;
}

ExpressionPtr Parser::test(ExpressionPtr input) {
  const uint32_t line = take().line;
  const bool negated = accept_name("not");
  auto node = make(E::test, line);
  node->text = dotted_name();
  adopt(*node, std::move(input));
  const Token& token = peek();
  if (token.is("(")) {
    arguments(*node);
  } else if (token.is_name("is")) {
    fail_at(token.line, "tests cannot be chained with 'is'");
  } else if ((token.kind == T::name && !token.is_name("else") && !token.is_name("or") &&
              !token.is_name("and")) ||
             token.kind == T::string || token.kind == T::integer || token.kind == T::real || token.is("[") ||
             token.is("{")) {
    // `x is divisibleby 3`: one argument without parentheses.
    adopt(*node, postfix(primary()));
  }
  if (!negated) return node;
  auto inverse = make(E::unary, line);
  inverse->op = Operator::logical_not;
  adopt(*inverse, std::move(node));
  return inverse;
}

ExpressionPtr Parser::subscript(ExpressionPtr object) {
  if (accept("[")) return index_or_slice(std::move(object));
  expect(".");
  if (peek().kind == T::integer) {
    auto node = make(E::item, peek().line);
    adopt(*node, std::move(object));
    adopt(*node, number());
    return node;
  }
  auto node = make(E::attribute, peek().line);
  node->text = expect_name("an attribute name");
  adopt(*node, std::move(object));
  return node;
}

ExpressionPtr Parser::index_or_slice(ExpressionPtr object) {
  const Nesting nesting(*this);
  auto node = make(E::item, peek().line);
  adopt(*node, std::move(object));
  if (peek().is("]")) unexpected("an index");
  const auto part = [&]() -> ExpressionPtr {
    return peek().is(":") || peek().is("]") ? nullptr : expression();
  };
  adopt(*node, part());
  if (peek().is(":")) {
    node->kind = E::slice;
    for (int i = 0; i < 2; ++i) adopt(*node, accept(":") ? part() : nullptr);
  }
  expect("]");
  return node;
}

void Parser::arguments(Expression& node) {
  const Nesting nesting(*this);
  expect("(");
  bool first = true;
  while (!accept(")")) {
    if (!first) {
      expect(",");
      if (accept(")")) return;
    }
    first = false;
    if (peek().is("*") || peek().is("**"))
      fail_at(peek().line, "argument unpacking ('{}') is not supported", peek().value);
    if (peek().kind == T::name && peek(1).is("=")) {
      std::string name = take().value;
      ++at_;
      ExpressionPtr value = expression();
      node.depth = std::max(node.depth, value->depth + 1);
      node.keywords.push_back({std::move(name), std::move(value)});
    } else {
      if (!node.keywords.empty()) fail_at(peek().line, "positional argument after a keyword argument");
      adopt(node, expression());
    }
  }
}

}  // namespace godwit::chat::jinja
