// Walks the syntax tree. One object per render.
#pragma once

#include "chat/jinja/ast.h"
#include "chat/jinja/runtime.h"

namespace godwit::chat::jinja {

class Interpreter {
 public:
  Interpreter(const Tree& tree, Runtime& runtime) : tree_(tree), runtime_(runtime) {}

  // Renders into `out`. `top` is the template's top-level scope: context values are in its parents. Throws
  // Failure.
  void run(Scope& top, Buffer& out) { exec(tree_.body, top, out); }

 private:
  enum class Flow : uint8_t { normal, break_loop, continue_loop };

  // exec.cpp
  Flow exec(const Block& block, Scope& scope, Buffer& out);
  Flow exec(const Statement& s, Scope& scope, Buffer& out);
  Flow exec_branch(const Statement& s, Scope& scope, Buffer& out);
  Flow exec_loop(const Statement& s, const Value& items, Scope& scope, Buffer& out, size_t depth0);
  Flow exec_captured(const Statement& s, Scope& scope, Buffer& out);
  Flow exec_with(const Statement& s, Scope& scope, Buffer& out);
  void exec_call_block(const Statement& s, Scope& scope, Buffer& out);
  void prepare_fetch(Loop& loop, const Statement& s, const Value& items, Scope& scope);
  void emit(Buffer& out, const Value& value);
  void emit(Buffer& out, const Text& text);
  void assign(const Expression& target, const Value& value, Scope& scope);
  void unpack(const Expression& target, const Value& value, Scope& scope);
  Value make_macro(const Statement& definition, Scope& scope);

  // eval.cpp
  Value eval(const Expression& e, Scope& scope);
  Value eval_name(const Expression& e, Scope& scope);
  Value eval_dict(const Expression& e, Scope& scope);
  Value eval_slice(const Expression& e, Scope& scope);
  Value eval_unary(const Expression& e, Scope& scope);
  Value eval_binary(const Expression& e, Scope& scope);
  Value eval_comparison(const Expression& e, Scope& scope);
  Value eval_filter(const Expression& e, Scope& scope, const Value* block_input);
  Value eval_test(const Expression& e, Scope& scope);
  Arguments eval_arguments(const Expression& e, Scope& scope);

  // call.cpp
  Value eval_call(const Expression& e, Scope& scope, const Value* caller);
  Value call(const Value& callee, Arguments& arguments);
  Value call_macro(const Macro& macro, Arguments& arguments);
  void bind_macro(const Macro& macro, Arguments& arguments, Scope& frame);

  const Tree& tree_;
  Runtime& runtime_;
};

}  // namespace godwit::chat::jinja
