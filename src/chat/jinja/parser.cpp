#include "chat/jinja/parser.h"

#include <algorithm>

#include "chat/jinja/failure.h"

namespace godwit::chat::jinja {

Nesting::Nesting(Parser& parser) : parser_(parser) {
  if (parser.nesting_ >= parser.limits_.parse_depth) {
    fail_at(parser.peek().line, "nested deeper than {} levels", parser.limits_.parse_depth);
  }
  ++parser.nesting_;
}

Parser::Parser(std::vector<Token> tokens, const Limits& limits)
    : tokens_(std::move(tokens)), limits_(limits) {
  for (const std::string_view name : {"loop", "caller", "varargs", "kwargs"}) intern(name);
}

Tree Parser::run() {
  Tree tree;
  tree.body = block({});
  tree.names = std::move(names_);
  return tree;
}

Symbol Parser::intern(std::string_view name) {
  const auto [it, is_new] = symbols_.emplace(std::string(name), static_cast<Symbol>(names_.size()));
  if (is_new) names_.emplace_back(name);
  return it->second;
}

ExpressionPtr Parser::make(Expression::Kind kind, uint32_t line) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = line;
  return node;
}

void Parser::adopt(Expression& parent, ExpressionPtr child) const {
  if (child) {
    parent.depth = std::max(parent.depth, child->depth + 1);
    if (parent.depth > limits_.parse_depth) {
      fail_at(parent.line, "expression is nested or chained deeper than {} levels", limits_.parse_depth);
    }
  }
  parent.children.push_back(std::move(child));
}

ExpressionPtr Parser::binary(Operator op, ExpressionPtr left, ExpressionPtr right) const {
  auto node = make(Expression::Kind::binary, left->line);
  node->op = op;
  adopt(*node, std::move(left));
  adopt(*node, std::move(right));
  return node;
}

const Token& Parser::peek(size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}

Token Parser::take() {
  if (at_ + 1 < tokens_.size()) return std::move(tokens_[at_++]);
  return tokens_.back();
}

bool Parser::accept(std::string_view symbol) {
  if (!peek().is(symbol)) return false;
  ++at_;
  return true;
}

bool Parser::accept_name(std::string_view word) {
  if (!peek().is_name(word)) return false;
  ++at_;
  return true;
}

void Parser::expect(std::string_view symbol) {
  if (!accept(symbol)) unexpected(fmt::format("'{}'", symbol));
}

std::string Parser::expect_name(std::string_view what) {
  if (peek().kind != Token::Kind::name) unexpected(what);
  return take().value;
}

void Parser::unexpected(std::string_view expected) const {
  const Token& token = peek();
  switch (token.kind) {
    case Token::Kind::end:
      fail_at(token.line, "the template ends where {} was expected", expected);
    case Token::Kind::tag_end:
    case Token::Kind::print_end:
      fail_at(token.line, "the tag ends where {} was expected", expected);
    case Token::Kind::text:
      fail_at(token.line, "text where {} was expected", expected);
    default:
      fail_at(token.line, "'{}' where {} was expected", token.value, expected);
  }
}

}  // namespace godwit::chat::jinja
