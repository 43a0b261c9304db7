// Template source to tokens, with the white-space rules of trim_blocks and lstrip_blocks (api spec §2.1,
// §2.12 (c)).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "chat/jinja/limits.h"

namespace godwit::chat::jinja {

struct Token {
  enum class Kind : uint8_t {
    text,
    print_begin,
    print_end,
    tag_begin,
    tag_end,
    name,
    string,
    integer,
    real,
    symbol,
    end
  };
  Kind kind;
  std::string value;  // decoded for strings, digits without '_' for numbers
  uint32_t line;

  bool is(std::string_view symbol_text) const { return kind == Kind::symbol && value == symbol_text; }
  bool is_name(std::string_view word) const { return kind == Kind::name && value == word; }
};

// Ends with a token of Kind::end. Throws Failure naming the line.
std::vector<Token> lex(std::string_view source, const Limits& limits);

}  // namespace godwit::chat::jinja
