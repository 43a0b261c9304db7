// TextFrontEnd: model output as text to the items of OutputParser, for `godwit debug parse` and wherever ids
// are not at hand. The tags are found by their literals, across any cut of the input.
#pragma once

#include <string>
#include <string_view>

#include "chat/parser.h"

namespace godwit::chat {

class TextFrontEnd {
 public:
  explicit TextFrontEnd(ParserOptions options) : parser_(std::move(options)) {}

  // Any bytes; ill-formed UTF-8 becomes U+FFFD. False once no more text is wanted: a stop string or a
  // turn-ending token (<|user|>, <|observation|>, <|endoftext|>) was found.
  bool push(std::string_view bytes);
  void end(EndReason reason);

  OutputParser& parser() { return parser_; }

 private:
  void text(std::string_view bytes);
  void flush_text();

  OutputParser parser_;
  std::string held_;  // may be the beginning of a literal
  std::string tail_;  // unfinished character of the text before
  bool ended_ = false;
};

}  // namespace godwit::chat
