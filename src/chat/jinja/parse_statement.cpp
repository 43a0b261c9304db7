// The tags: if, for, set, macro, call, filter, with, generation, break, continue.
#include <algorithm>

#include "chat/jinja/failure.h"
#include "chat/jinja/parser.h"

namespace godwit::chat::jinja {
namespace {

using S = Statement::Kind;
using T = Token::Kind;

}  // namespace

// Statements up to a tag named in `ends`, whose name stays to be read (or to the end of the template).
Block Parser::block(std::initializer_list<std::string_view> ends) {
  const Nesting nesting(*this);
  Block out;
  while (true) {
    const Token& token = peek();
    if (token.kind == T::text) {
      auto text = std::make_unique<Statement>();
      text->kind = S::text;
      text->line = token.line;
      text->text = take().value;
      out.push_back(std::move(text));
    } else if (token.kind == T::print_begin) {
      auto print = std::make_unique<Statement>();
      print->kind = S::print;
      print->line = take().line;
      print->expression = tuple_or_expression(true);
      if (peek().kind != T::print_end) unexpected("'}}'");
      take();
      out.push_back(std::move(print));
    } else if (token.kind == T::tag_begin) {
      take();
      if (peek().kind != T::name) unexpected("a tag name");
      if (std::find(ends.begin(), ends.end(), peek().value) != ends.end()) return out;
      statement(out);
    } else {
      if (ends.size() > 0) fail_at(token.line, "the template ends without '{}'", *(ends.end() - 1));
      return out;
    }
  }
}

void Parser::end_tag(std::string_view name) {
  if (!accept_name(name)) unexpected(fmt::format("'{}'", name));
  if (peek().kind != T::tag_end) unexpected("'%}'");
  take();
}

void Parser::statement(Block& out) {
  auto s = std::make_unique<Statement>();
  s->line = peek().line;
  const std::string name = take().value;
  if (name == "if") {
    parse_if(*s);
  } else if (name == "for") {
    parse_for(*s);
  } else if (name == "set") {
    parse_set(*s);
  } else if (name == "macro") {
    parse_macro(*s);
  } else if (name == "call") {
    parse_call(*s);
  } else if (name == "filter") {
    parse_filter_block(*s);
  } else if (name == "with") {
    parse_with(*s);
  } else if (name == "generation") {
    s->kind = S::scope;
    if (peek().kind != T::tag_end) unexpected("'%}'");
    take();
    const size_t loops = std::exchange(loops_, 0);
    s->body = block({"endgeneration"});
    loops_ = loops;
    end_tag("endgeneration");
  } else if (name == "break" || name == "continue") {
    if (loops_ == 0) fail_at(s->line, "'{}' outside of a loop", name);
    s->kind = name == "break" ? S::break_loop : S::continue_loop;
    if (peek().kind != T::tag_end) unexpected("'%}'");
    take();
  } else {
    fail_at(s->line, "unknown tag '{}'", name);
  }
  out.push_back(std::move(s));
}

void Parser::parse_if(Statement& s) {
  s.kind = S::branch;
  while (true) {
    Branch branch;
    branch.condition = tuple_or_expression(false);
    if (peek().kind != T::tag_end) unexpected("'%}'");
    take();
    branch.body = block({"elif", "else", "endif"});
    s.branches.push_back(std::move(branch));
    if (accept_name("elif")) continue;
    if (peek().is_name("else")) {
      end_tag("else");
      s.branches.push_back({nullptr, block({"endif"})});
    }
    return end_tag("endif");
  }
}

void Parser::parse_for(Statement& s) {
  s.kind = S::loop;
  s.target = target(false);
  if (!accept_name("in")) unexpected("'in'");
  s.expression = tuple_or_expression(false);
  if (accept_name("if")) s.condition = expression();
  s.recursive = accept_name("recursive");
  if (peek().kind != T::tag_end) unexpected("'%}'");
  take();
  ++loops_;
  s.body = block({"else", "endfor"});
  --loops_;
  if (peek().is_name("else")) {
    end_tag("else");
    s.otherwise = block({"endfor"});
  }
  end_tag("endfor");
}

ExpressionPtr Parser::single_target(bool with_attribute) {
  if (accept("(")) {
    ExpressionPtr inner = target(false);
    expect(")");
    return inner;
  }
  auto node = make(Expression::Kind::name, peek().line);
  const std::string name = expect_name("a name to assign to");
  for (const std::string_view word : {"true", "false", "none", "True", "False", "None"}) {
    if (name == word) fail_at(node->line, "cannot assign to '{}'", name);
  }
  node->symbol = intern(name);
  if (!with_attribute || !accept(".")) return node;
  auto attribute = make(Expression::Kind::attribute, node->line);
  attribute->text = expect_name("an attribute name");
  adopt(*attribute, std::move(node));
  return attribute;
}

ExpressionPtr Parser::target(bool with_attribute) {
  const Nesting nesting(*this);
  ExpressionPtr first = single_target(with_attribute);
  if (!peek().is(",")) return first;
  auto tuple = make(Expression::Kind::tuple, first->line);
  adopt(*tuple, std::move(first));
  while (accept(",") && !ends_tuple()) adopt(*tuple, single_target(with_attribute));
  return tuple;
}

void Parser::parse_set(Statement& s) {
  s.target = target(true);
  if (accept("=")) {
    s.kind = S::set;
    s.expression = tuple_or_expression(true);
    if (peek().kind != T::tag_end) unexpected("'%}'");
    take();
    return;
  }
  s.kind = S::set_block;
  while (accept("|")) s.expression = filter(std::move(s.expression));
  if (peek().kind != T::tag_end) unexpected("'=' or '%}'");
  take();
  s.body = block({"endset"});
  end_tag("endset");
}

void Parser::parameters(Statement& s) {
  expect("(");
  while (!accept(")")) {
    if (!s.parameters.empty()) {
      expect(",");
      if (accept(")")) return;
    }
    Parameter parameter;
    parameter.name = expect_name("a parameter name");
    parameter.symbol = intern(parameter.name);
    if (accept("=")) {
      parameter.fallback = expression();
    } else if (!s.parameters.empty() && s.parameters.back().fallback) {
      fail_at(peek().line, "parameter '{}' without a default after one with a default", parameter.name);
    }
    s.parameters.push_back(std::move(parameter));
  }
}

void Parser::macro_body(Statement& s, std::string_view end) {
  if (peek().kind != T::tag_end) unexpected("'%}'");
  take();
  macros_.push_back(&s);
  const size_t loops = std::exchange(loops_, 0);
  s.body = block({end});
  loops_ = loops;
  macros_.pop_back();
  end_tag(end);
}

void Parser::parse_macro(Statement& s) {
  s.kind = S::macro;
  s.text = expect_name("the macro's name");
  s.symbol = intern(s.text);
  parameters(s);
  macro_body(s, "endmacro");
}

void Parser::parse_call(Statement& s) {
  s.kind = S::call;
  s.text = "caller";
  if (peek().is("(")) parameters(s);
  s.expression = expression();
  if (s.expression->kind != Expression::Kind::call) fail_at(s.line, "'call' needs a call of a macro");
  macro_body(s, "endcall");
}

void Parser::parse_filter_block(Statement& s) {
  s.kind = S::filter;
  s.expression = filter(nullptr);
  while (accept("|")) s.expression = filter(std::move(s.expression));
  if (peek().kind != T::tag_end) unexpected("'%}'");
  take();
  s.body = block({"endfilter"});
  end_tag("endfilter");
}

void Parser::parse_with(Statement& s) {
  s.kind = S::with;
  while (peek().kind != T::tag_end) {
    if (!s.targets.empty()) expect(",");
    s.targets.push_back(target(false));
    expect("=");
    s.values.push_back(expression());
  }
  take();
  s.body = block({"endwith"});
  end_tag("endwith");
}

}  // namespace godwit::chat::jinja
