// Names and the callables that close over them.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/jinja/value.h"

namespace godwit::chat::jinja {

struct Statement;
class Runtime;
struct Arguments;

using Symbol = uint32_t;  // a name of the template, interned by the parser

// One frame of names: the template's top level, one loop iteration, one macro call, one block body. Reads
// look outwards, `set` writes here: that alone gives Jinja's scoping (api spec §2.12 (c)).
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<Symbol, Value>> names;

  Value* find_here(Symbol name);
  Value* find(Symbol name);
  void set(Symbol name, const Value& value);
};

// A macro sees the scope it was defined in, at the time it is called (late binding).
struct Macro {
  const Statement* definition = nullptr;
  Scope* scope = nullptr;
  std::string_view name;
};

using MethodBody = Value (*)(Runtime&, const Value& self, Arguments&);
struct Method {
  Value self;
  std::string_view name;
  MethodBody body = nullptr;
};

struct Function {
  std::string_view name;
  Value (*body)(Runtime&, Arguments&);
};

}  // namespace godwit::chat::jinja
