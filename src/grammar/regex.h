// Regular expressions of JSON Schema's `pattern` and of the `regex` extension, compiled to automata: linear
// time whatever the expression.
//
// Subset of ECMA-262: literals, ., classes, \d \w \s (ASCII) and their negations, \t \n \r \f \v \0 \xHH
// \uHHHH \u{…}, groups ( ) (?: ), |, * + ? {n} {n,} {n,m} (a lazy mark changes nothing here), ^ and $ at the
// ends of the outermost alternatives. Refused by name: look-around, back-references, \b, \p, named groups,
// anchors elsewhere.
#pragma once

#include <string_view>

#include "base/result.h"
#include "grammar/nfa.h"

namespace godwit::grammar {

struct RegexOptions {
  Spelling spelling = Spelling::plain;
  bool search = false;  // the match may lie anywhere (JSON Schema); else the whole text must match
  bool quoted = false;  // the text stands between double quotes
};

// Errors: invalid_request with the byte offset in the pattern; the caller says where the pattern stands.
Result<ByteDfa> compile_regex(std::string_view pattern, const RegexOptions& options,
                              const DfaLimits& limits = {});

}  // namespace godwit::grammar
