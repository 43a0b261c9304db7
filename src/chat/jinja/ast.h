// Syntax tree of a template. Two node types with a kind each: the evaluator switches over it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "chat/jinja/scope.h"
#include "chat/jinja/value.h"

namespace godwit::chat::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Block = std::vector<std::unique_ptr<Statement>>;

enum class Operator : uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  concat,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in,
  negate,
  positive,
  logical_not,
  logical_and,
  logical_or,
};

struct Keyword {
  std::string name;
  ExpressionPtr value;
};

struct Expression {
  enum class Kind : uint8_t {
    constant,     // literal
    name,         // symbol
    list,         // children
    tuple,        // children
    dict,         // children: key, value, key, value …
    attribute,    // children[0] . text
    item,         // children[0] [ children[1] ]
    slice,        // children[0] [ children[1] : children[2] : children[3] ], each null when left out
    call,         // children[0] ( children[1…], keywords )
    filter,       // children[0] | text ( children[1…], keywords ); children[0] is null in a filter block
    test,         // children[0] is text ( children[1…], keywords )
    unary,        // op children[0]
    binary,       // children[0] op children[1]
    comparison,   // children[0] operators[0] children[1] operators[1] children[2] …
    conditional,  // children[0] if children[1] else children[2], which may be null
  };
  Kind kind;
  uint32_t line = 0;
  uint32_t depth = 1;  // height of this tree: bounds the evaluator's recursion
  std::string text;
  Value literal;
  Symbol symbol = 0;
  Operator op = Operator::add;
  std::vector<Operator> operators;
  std::vector<ExpressionPtr> children;
  std::vector<Keyword> keywords;
};

struct Parameter {
  Symbol symbol;
  std::string name;
  ExpressionPtr fallback;  // null: undefined when missing
};

// One arm of an if; the condition of `else` is null.
struct Branch {
  ExpressionPtr condition;
  Block body;
};

struct Statement {
  enum class Kind : uint8_t {
    text,       // text
    print,      // expression
    branch,     // branches
    loop,       // for target in expression if condition: body, otherwise; recursive
    set,        // target = expression
    set_block,  // target = body, through expression (a filter) when not null
    macro,      // symbol, text (name), parameters, body
    call,       // expression is the call, parameters + body the caller
    filter,     // expression is the filter chain over body
    with,       // target_list = values, body
    scope,      // body in a scope of its own ({% generation %})
    break_loop,
    continue_loop,
  };
  Kind kind;
  uint32_t line = 0;
  std::string text;
  Symbol symbol = 0;
  ExpressionPtr target, expression, condition;
  Block body, otherwise;
  std::vector<Branch> branches;
  std::vector<Parameter> parameters;
  std::vector<ExpressionPtr> targets, values;  // of `with`
  bool recursive = false;
  bool takes_varargs = false, takes_kwargs = false, takes_caller = false;  // the macro body names them
};

struct Tree {
  Block body;
  std::vector<std::string> names;  // by Symbol
};

}  // namespace godwit::chat::jinja
