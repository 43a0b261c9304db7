// The expression grammar of Jinja: conditional, or, and, not, comparison, sum, '~', product, power, unary,
// filters.
#include "chat/jinja/parser.h"

namespace godwit::chat::jinja {
namespace {

using E = Expression::Kind;
using T = Token::Kind;

constexpr struct {
  std::string_view symbol;
  Operator op;
} kComparisons[] = {{"==", Operator::equal},  {"!=", Operator::not_equal},
                    {"<", Operator::less},    {"<=", Operator::less_equal},
                    {">", Operator::greater}, {">=", Operator::greater_equal}};

}  // namespace

bool Parser::ends_tuple() const {
  const Token& token = peek();
  return token.kind == T::tag_end || token.kind == T::print_end || token.is(")") || token.is("=") ||
         token.is_name("in") || token.is_name("recursive");
}

ExpressionPtr Parser::tuple_or_expression(bool with_conditional) {
  const uint32_t line = peek().line;
  ExpressionPtr first = with_conditional ? expression() : or_expression();
  if (!peek().is(",")) return first;
  auto tuple = make(E::tuple, line);
  adopt(*tuple, std::move(first));
  while (accept(",") && !ends_tuple()) adopt(*tuple, with_conditional ? expression() : or_expression());
  return tuple;
}

ExpressionPtr Parser::expression() {
  const Nesting nesting(*this);
  ExpressionPtr node = or_expression();
  while (peek().is_name("if")) {
    auto conditional = make(E::conditional, take().line);
    ExpressionPtr condition = or_expression();
    adopt(*conditional, std::move(node));
    adopt(*conditional, std::move(condition));
    adopt(*conditional, accept_name("else") ? expression() : nullptr);
    node = std::move(conditional);
  }
  return node;
}

ExpressionPtr Parser::or_expression() {
  ExpressionPtr left = and_expression();
  while (accept_name("or")) left = binary(Operator::logical_or, std::move(left), and_expression());
  return left;
}

ExpressionPtr Parser::and_expression() {
  ExpressionPtr left = not_expression();
  while (accept_name("and")) left = binary(Operator::logical_and, std::move(left), not_expression());
  return left;
}

ExpressionPtr Parser::not_expression() {
  const Nesting nesting(*this);
  if (!peek().is_name("not")) return comparison();
  auto node = make(E::unary, take().line);
  node->op = Operator::logical_not;
  adopt(*node, not_expression());
  return node;
}

ExpressionPtr Parser::comparison() {
  ExpressionPtr first = sum();
  ExpressionPtr node;
  const auto chain = [&](Operator op) {
    if (!node) {
      node = make(E::comparison, first->line);
      adopt(*node, std::move(first));
    }
    node->operators.push_back(op);
    adopt(*node, sum());
  };
  while (true) {
    bool found = false;
    for (const auto& candidate : kComparisons) {
      if (!accept(candidate.symbol)) continue;
      chain(candidate.op);
      found = true;
      break;
    }
    if (found) continue;
    if (accept_name("in")) {
      chain(Operator::in);
    } else if (peek().is_name("not") && peek(1).is_name("in")) {
      at_ += 2;
      chain(Operator::not_in);
    } else {
      return node ? std::move(node) : std::move(first);
    }
  }
}

ExpressionPtr Parser::sum() {
  ExpressionPtr left = concatenation();
  while (peek().is("+") || peek().is("-")) {
    const Operator op = take().value == "+" ? Operator::add : Operator::subtract;
    left = binary(op, std::move(left), concatenation());
  }
  return left;
}

ExpressionPtr Parser::concatenation() {
  ExpressionPtr left = product();
  while (accept("~")) left = binary(Operator::concat, std::move(left), product());
  return left;
}

ExpressionPtr Parser::product() {
  ExpressionPtr left = power();
  while (peek().is("*") || peek().is("/") || peek().is("//") || peek().is("%")) {
    const Token token = take();
    const std::string& symbol = token.value;
    const Operator op = symbol == "*"    ? Operator::multiply
                        : symbol == "/"  ? Operator::divide
                        : symbol == "//" ? Operator::floor_divide
                                         : Operator::modulo;
    left = binary(op, std::move(left), power());
  }
  return left;
}

ExpressionPtr Parser::power() {
  ExpressionPtr left = unary(true);
  while (accept("**")) left = binary(Operator::power, std::move(left), unary(true));
  return left;
}

ExpressionPtr Parser::unary(bool with_filters) {
  const Nesting nesting(*this);
  ExpressionPtr node;
  if (peek().is("-") || peek().is("+")) {
    Token sign = take();
    node = make(E::unary, sign.line);
    node->op = sign.value == "-" ? Operator::negate : Operator::positive;
    adopt(*node, unary(false));
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filters ? filters(std::move(node)) : std::move(node);
}

}  // namespace godwit::chat::jinja
