// The expression grammar of Jinja: conditional, or, and, not, comparison, sum, '~', product, power, unary,
// filters.
#include <charconv>
#include <cstdlib>

#include "chat/jinja/failure.h"
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
