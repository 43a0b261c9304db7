// Tokens to syntax tree.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "chat/jinja/ast.h"
#include "chat/jinja/lexer.h"
#include "chat/jinja/limits.h"

namespace godwit::chat::jinja {

// Names that every tree knows, by fixed Symbol.
constexpr Symbol kLoopSymbol = 0;
constexpr Symbol kCallerSymbol = 1;
constexpr Symbol kVarargsSymbol = 2;
constexpr Symbol kKwargsSymbol = 3;

class Parser {
 public:
  Parser(std::vector<Token> tokens, const Limits& limits);
  Tree run();  // throws Failure

 private:
  friend class Nesting;

  // Statements (parse_statement.cpp).
  Block block(std::initializer_list<std::string_view> ends);
  void statement(Block& out);
  void parse_if(Statement& s);
  void parse_for(Statement& s);
  void parse_set(Statement& s);
  void parse_macro(Statement& s);
  void parse_call(Statement& s);
  void parse_filter_block(Statement& s);
  void parse_with(Statement& s);
  void parameters(Statement& s);
  void macro_body(Statement& s, std::string_view end);
  ExpressionPtr target(bool with_attribute);
  ExpressionPtr single_target(bool with_attribute);
  void end_tag(std::string_view name);

  // Expressions (parse_expression.cpp).
  ExpressionPtr tuple_or_expression(bool with_conditional);
  ExpressionPtr expression();
  ExpressionPtr or_expression();
  ExpressionPtr and_expression();
  ExpressionPtr not_expression();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr number();
  ExpressionPtr parenthesised();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr node);
  ExpressionPtr filters(ExpressionPtr node);
  ExpressionPtr filter(ExpressionPtr input);
  ExpressionPtr test(ExpressionPtr input);
  ExpressionPtr subscript(ExpressionPtr object);
  ExpressionPtr index_or_slice(ExpressionPtr object);
  void arguments(Expression& node);
  std::string dotted_name();
  bool ends_tuple() const;

  ExpressionPtr make(Expression::Kind kind, uint32_t line) const;
  ExpressionPtr binary(Operator op, ExpressionPtr left, ExpressionPtr right) const;
  void adopt(Expression& parent, ExpressionPtr child) const;  // keeps depth right, fails beyond the limit
  Symbol intern(std::string_view name);

  const Token& peek(size_t ahead = 0) const;
  Token take();
  bool accept(std::string_view symbol);
  bool accept_name(std::string_view word);
  void expect(std::string_view symbol);
  std::string expect_name(std::string_view what);
  [[noreturn]] void unexpected(std::string_view expected) const;

  std::vector<Token> tokens_;
  const Limits& limits_;
  size_t at_ = 0;
  size_t nesting_ = 0;
  size_t loops_ = 0;  // enclosing for statements inside the current macro
  std::vector<Statement*> macros_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, Symbol> symbols_;
};

// Guards one level of recursion of the parser.
class Nesting {
 public:
  explicit Nesting(Parser& parser);
  ~Nesting() { --parser_.nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Parser& parser_;
};

}  // namespace godwit::chat::jinja
