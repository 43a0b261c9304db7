#include "chat/jinja/lexer.h"

#include <charconv>

#include "chat/jinja/failure.h"
#include "chat/jinja/string_literal.h"
#include "chat/jinja/unicode.h"

namespace godwit::chat::jinja {
namespace {

using K = Token::Kind;

bool digit(char c) {
  return c >= '0' && c <= '9';
}
bool name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

// Jinja reads \r\n and \r as \n and drops one newline at the end of the file.
std::string normalise_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

std::string_view trim_right(std::string_view text) {
  while (!text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    size_t at = start;
    if (!is_space(next_code_point(text, at))) break;
    text = text.substr(0, start);
  }
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t open = find_open();
      if (open == std::string_view::npos) {
        push_text(source_.substr(at_));
        break;
      }
      const char mark = source_[open + 1];
      const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
      std::string_view text = source_.substr(at_, open - at_);
      if (sign == '-') {
        text = trim_right(text);
      } else if (sign != '+' && mark != '{') {
        text = strip_line_start(text);
      }
      push_text(text);
      skip_to(open + 2 + (sign == '-' || sign == '+' ? 1 : 0));
      if (mark == '#') {
        comment();
      } else if (mark == '%') {
        if (!raw()) inside(K::tag_begin, K::tag_end, '%');
      } else {
        inside(K::print_begin, K::print_end, '}');
      }
    }
    push(K::end, {});
    return std::move(tokens_);
  }

 private:
  size_t find_open() const {
    for (size_t i = source_.find('{', at_); i != std::string_view::npos; i = source_.find('{', i + 1)) {
      if (i + 1 < source_.size() && (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#'))
        return i;
    }
    return std::string_view::npos;
  }

  // lstrip_blocks: white space between the start of the line and the tag goes.
  std::string_view strip_line_start(std::string_view text) const {
    const size_t newline = text.rfind('\n');
    if (newline == std::string_view::npos && !line_starting_) return text;
    const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
    for (size_t i = start; i < text.size();) {
      if (!is_space(next_code_point(text, i))) return text;
    }
    return text.substr(0, start);
  }

  void push(K kind, std::string value) { tokens_.push_back({kind, std::move(value), line_}); }
  void push_text(std::string_view text) {
    if (!text.empty()) push(K::text, std::string(text));
  }

  void skip_to(size_t end) {
    for (; at_ < end; ++at_) line_ += source_[at_] == '\n';
  }

  // At the end mark of a block or comment (`mark` then '}'), perhaps signed: passes it and the white space it
  // takes.
  bool end_mark(char mark, bool trim_newline) {
    size_t i = at_;
    const char sign = i < source_.size() && (source_[i] == '-' || source_[i] == '+') ? source_[i] : '\0';
    if (sign != '\0') ++i;
    if (sign == '+' && mark == '}') return false;
    if (i + 1 >= source_.size() || source_[i] != mark || source_[i + 1] != '}') return false;
    i += 2;
    if (sign == '-') {
      while (i < source_.size()) {
        size_t next = i;
        if (!is_space(next_code_point(source_, next))) break;
        i = next;
      }
    } else if (sign == '\0' && trim_newline && i < source_.size() && source_[i] == '\n') {
      ++i;
    }
    line_starting_ = source_[i - 1] == '\n';
    skip_to(i);
    return true;
  }

  void comment() {
    const uint32_t line = line_;
    for (size_t i = source_.find("#}", at_); i != std::string_view::npos; i = source_.find("#}", i + 1)) {
      const bool is_signed = i > at_ && (source_[i - 1] == '-' || source_[i - 1] == '+');
      skip_to(is_signed ? i - 1 : i);
      if (end_mark('#', true)) return;
    }
    fail_at(line, "comment '{{#' without its '#}}'");
  }

  void skip_space() {
    while (at_ < source_.size()) {
      size_t next = at_;
      if (!is_space(next_code_point(source_, next))) return;
      skip_to(next);
    }
  }

  bool skip_word(std::string_view word) {
    if (source_.substr(at_, word.size()) != word) return false;
    skip_to(at_ + word.size());
    return true;
  }

  // {% raw %} … {% endraw %}: everything between is text. False, nothing consumed, when this tag is another
  // one.
  bool raw() {
    const size_t start_at = at_;
    const uint32_t start_line = line_;
    skip_space();
    const bool is_raw = skip_word("raw");
    if (is_raw) skip_space();
    if (!is_raw || !end_mark('%', false)) {
      at_ = start_at;
      line_ = start_line;
      return false;
    }
    const size_t body = at_;
    for (size_t open = source_.find("{%", at_); open != std::string_view::npos;
         open = source_.find("{%", open + 1)) {
      skip_to(open + 2);
      const char sign =
          at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+') ? source_[at_] : '\0';
      if (sign != '\0') skip_to(at_ + 1);
      skip_space();
      if (!skip_word("endraw")) continue;
      skip_space();
      std::string_view text = source_.substr(body, open - body);
      if (sign == '-') {
        text = trim_right(text);
      } else if (sign == '\0') {
        text = strip_line_start(text);
      }
      if (!end_mark('%', true)) continue;
      push_text(text);
      return true;
    }
    fail_at(start_line, "'raw' without its 'endraw'");
  }

  void inside(K begin, K end, char mark) {
    push(begin, {});
    const uint32_t line = line_;
    std::string open;  // brackets not closed yet
    while (true) {
      skip_space();
      if (at_ >= source_.size()) fail_at(line, "tag is not closed before the end of the template");
      if (open.empty() && end_mark(mark, mark == '%')) break;
      token(open);
    }
    push(end, {});
  }

  void token(std::string& open) {
    const char c = source_[at_];
    if (digit(c)) return number();
    if (name_start(c)) {
      size_t i = at_;
      while (i < source_.size() && (name_start(source_[i]) || digit(source_[i]))) ++i;
      push(K::name, std::string(source_.substr(at_, i - at_)));
      return skip_to(i);
    }
    if (c == '"' || c == '\'') {
      size_t i = at_ + 1;
      while (i < source_.size() && source_[i] != c) i += source_[i] == '\\' ? 2 : 1;
      if (i >= source_.size()) fail_at(line_, "string is not closed before the end of the template");
      push(K::string, decode_string_literal(source_.substr(at_ + 1, i - at_ - 1), line_));
      return skip_to(i + 1);
    }
    for (const std::string_view pair : {"//", "**", "==", "!=", ">=", "<="}) {
      if (source_.substr(at_, 2) == pair) {
        push(K::symbol, std::string(pair));
        return skip_to(at_ + 2);
      }
    }
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) {
      fail_at(line_, "unexpected character '{}'", c);
    }
    bracket(c, open);
    push(K::symbol, std::string(1, c));
    skip_to(at_ + 1);
  }

  void bracket(char c, std::string& open) const {
    if (c == '(' || c == '[' || c == '{') {
      open += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) fail_at(line_, "unexpected '{}'", c);
      if (open.back() != c) fail_at(line_, "unexpected '{}', expected '{}'", c, open.back());
      open.pop_back();
    }
  }

  // 0x…, 0o… and 0b…, rewritten in decimal.
  bool based(size_t& i, std::string& digits) const {
    const char mark =
        i + 1 < source_.size() && source_[i] == '0' ? static_cast<char>(source_[i + 1] | 0x20) : '\0';
    const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (base == 0) return false;
    uint64_t value = 0;
    const char* begin = source_.data() + i + 2;
    const auto [end, error] = std::from_chars(begin, source_.data() + source_.size(), value, base);
    if (end == begin) return false;
    if (error != std::errc()) fail_at(line_, "integer literal does not fit 64 bits");
    digits = fmt::format("{}", value);
    i = static_cast<size_t>(end - source_.data());
    return true;
  }

  void number() {
    // After a dot only an integer can stand: `items.0.name`.
    const bool after_dot = !tokens_.empty() && tokens_.back().is(".");
    size_t i = at_;
    std::string digits;
    const auto take = [&] {
      while (i < source_.size() &&
             (digit(source_[i]) || (source_[i] == '_' && i + 1 < source_.size() && digit(source_[i + 1])))) {
        if (source_[i] != '_') digits += source_[i];
        ++i;
      }
    };
    if (!after_dot && based(i, digits)) {
      push(K::integer, std::move(digits));
      return skip_to(i);
    }
    take();
    bool real = false;
    if (!after_dot) {
      if (i + 1 < source_.size() && source_[i] == '.' && digit(source_[i + 1])) {
        real = true;
        digits += source_[i++];
        take();
      }
      size_t e = i + 1;
      if (e < source_.size() && (source_[e] == '+' || source_[e] == '-')) ++e;
      if (i < source_.size() && (source_[i] == 'e' || source_[i] == 'E') && e < source_.size() &&
          digit(source_[e])) {
        real = true;
        digits += source_.substr(i, e - i);
        i = e;
        take();
      }
    }
    push(real ? K::real : K::integer, std::move(digits));
    skip_to(i);
  }

  std::string_view source_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool line_starting_ = true;  // nothing but a newline precedes the text being read
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> lex(std::string_view source, const Limits& limits) {
  if (source.size() > limits.source_bytes) {
    fail_at(1, "the template is {} bytes, the limit is {}", source.size(), limits.source_bytes);
  }
  if (!is_utf8(source)) fail_at(1, "the template is not valid UTF-8");
  const std::string text = normalise_newlines(source);
  return Lexer(text).run();
}

}  // namespace godwit::chat::jinja
