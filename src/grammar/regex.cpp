#include "grammar/regex.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "tokenizer/utf8.h"

namespace godwit::grammar {
namespace {

constexpr size_t kMaxPattern = 4096;  // bytes
constexpr unsigned kMaxDepth = 64;
constexpr unsigned kMaxCount = 4096;

struct Piece {  // of the expression tree; children by index, so that a repeat can be built again and again
  enum class Kind : uint8_t { empty, set, sequence, choice, repeat } kind = Kind::empty;
  CodePointSet set;
  std::vector<uint32_t> children;
  unsigned min = 0;
  unsigned max = 0;  // kUnbounded
};
constexpr unsigned kUnbounded = UINT32_MAX;

struct Branch {  // one of the outermost alternatives
  uint32_t piece;
  bool from_start;
  bool to_end;
};

const CodePointSet kDigits{{'0', '9'}};
const CodePointSet kWord{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CodePointSet kSpace{{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                          {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                          {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CodePointSet kLineEnds{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<std::vector<Branch>> branches() {
    std::vector<Branch> out;
    do {
      Branch branch{};
      branch.from_start = take('^');
      if (!sequence(0, branch.piece)) return std::move(error_);
      branch.to_end = take('$');
      if (at_ < text_.size() && text_[at_] != '|') {
        fail(text_[at_] == ')'
                 ? "')' closes no group"
                 : "'$' is supported only at the end of the pattern or of an outermost alternative");
        return std::move(error_);
      }
      out.push_back(branch);
    } while (take('|'));
    return out;
  }

  std::vector<Piece> pieces;

 private:
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool fail(std::string_view what) {
    error_ = make_error(ErrorCode::invalid_request, "", "{} (byte {} of the pattern)", what, at_);
    return false;
  }

  uint32_t add(Piece piece) {
    pieces.push_back(std::move(piece));
    return static_cast<uint32_t>(pieces.size() - 1);
  }

  bool choice(unsigned depth, uint32_t& out) {
    Piece piece{Piece::Kind::choice};
    do {
      if (!sequence(depth, piece.children.emplace_back())) return false;
    } while (take('|'));
    out = piece.children.size() == 1 ? piece.children[0] : add(std::move(piece));
    return true;
  }

  bool sequence(unsigned depth, uint32_t& out) {
    Piece piece{Piece::Kind::sequence};
    while (at_ < text_.size() && text_[at_] != '|' && text_[at_] != ')' && text_[at_] != '$') {
      uint32_t atom = 0;
      if (!one(depth, atom) || !repeats(atom)) return false;
      piece.children.push_back(atom);
    }
    if (depth > 0 && at_ < text_.size() && text_[at_] == '$')
      return fail("'$' inside a group is not supported");
    out = add(std::move(piece));
    return true;
  }

  bool one(unsigned depth, uint32_t& out) {
    if (text_[at_] == '(') return group(depth, out);
    if (text_[at_] == '^')
      return fail("'^' is supported only at the start of the pattern or of an outermost alternative");
    if (std::string_view("*+?").find(text_[at_]) != std::string_view::npos) return fail("nothing to repeat");
    Piece piece{Piece::Kind::set};
    if (take('.')) {
      piece.set = kLineEnds.complement();
    } else if (text_[at_] == '[') {
      if (!bracket(piece.set)) return false;
    } else if (text_[at_] == '\\') {
      if (!escape(piece.set, false)) return false;
    } else {
      const uint32_t c = character();
      piece.set.add(c, c);
    }
    out = add(std::move(piece));
    return true;
  }

  bool group(unsigned depth, uint32_t& out) {
    if (depth >= kMaxDepth) return fail("groups are nested deeper than 64");
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with("(?=") || rest.starts_with("(?!") || rest.starts_with("(?<=") ||
        rest.starts_with("(?<!"))
      return fail("look-around is not supported");
    if (rest.starts_with("(?:")) {
      at_ += 3;
    } else if (rest.starts_with("(?")) {
      return fail("named groups and inline flags are not supported");
    } else {
      ++at_;
    }
    if (!choice(depth + 1, out)) return false;
    return take(')') || fail("a group is not closed");
  }

  bool repeats(uint32_t& atom) {
    Piece piece{Piece::Kind::repeat};
    if (take('*')) {
      piece.max = kUnbounded;
    } else if (take('+')) {
      piece.min = 1, piece.max = kUnbounded;
    } else if (take('?')) {
      piece.max = 1;
    } else if (at_ < text_.size() && text_[at_] == '{') {
      if (!counts(piece)) return false;
    } else {
      return true;
    }
    take('?');
    if (at_ < text_.size() && std::string_view("*+?{").find(text_[at_]) != std::string_view::npos)
      return fail("a repeat follows a repeat");
    piece.children = {atom};
    atom = add(std::move(piece));
    return true;
  }

  bool counts(Piece& piece) {
    ++at_;
    auto number = [this](unsigned& out) {
      auto end = std::from_chars(text_.data() + at_, text_.data() + text_.size(), out);
      if (end.ec != std::errc()) return false;
      at_ = static_cast<size_t>(end.ptr - text_.data());
      return true;
    };
    if (!number(piece.min)) return fail("'{' must be followed by a count, or be written \\{");
    piece.max = piece.min;
    if (take(',') && !number(piece.max)) piece.max = kUnbounded;
    if (!take('}')) return fail("a count is not closed by '}'");
    if (piece.min > kMaxCount || (piece.max != kUnbounded && piece.max > kMaxCount))
      return fail("a count is larger than the limit of 4096");
    return piece.min <= piece.max || fail("a count's minimum is larger than its maximum");
  }

  uint32_t character() {
    unsigned length = 0;
    const uint32_t c =
        tokenizer::decode_utf8(reinterpret_cast<const unsigned char*>(text_.data()) + at_, length);
    at_ += length;
    return c;
  }

  bool bracket(CodePointSet& out) {
    ++at_;
    const bool negated = take('^');
    CodePointSet set;
    while (at_ < text_.size() && text_[at_] != ']') {
      CodePointSet low;
      if (!member(low)) return false;
      if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        ++at_;
        CodePointSet high;
        if (!member(high)) return false;
        const auto a = low.ranges();
        const auto b = high.ranges();
        if (a.size() != 1 || a[0].first != a[0].second || b.size() != 1 || b[0].first != b[0].second ||
            a[0].first > b[0].first)
          return fail("a range in a class must go from one character up to another");
        low.add(a[0].first, b[0].first);
      }
      set.add(low);
    }
    if (!take(']')) return fail("a class is not closed by ']'");
    out = negated ? set.complement() : set;
    return true;
  }

  bool member(CodePointSet& out) {
    if (at_ >= text_.size()) return fail("a class is not closed by ']'");
    if (text_[at_] == '\\') return escape(out, true);
    const uint32_t c = character();
    out.add(c, c);
    return true;
  }

  bool escape(CodePointSet& out, bool in_class) {
    ++at_;
    if (at_ >= text_.size()) return fail("the pattern ends in a backslash");
    const char name = text_[at_];
    constexpr std::string_view kControls = "tnrfv0";
    constexpr std::string_view kValues{"\t\n\r\f\v\0", 6};
    if (size_t i = kControls.find(name); i != std::string_view::npos) {
      ++at_;
      out.add(static_cast<uint8_t>(kValues[i]), static_cast<uint8_t>(kValues[i]));
      return true;
    }
    switch (name) {
      case 'd':
      case 'D':
      case 'w':
      case 'W':
      case 's':
      case 'S': {
        const CodePointSet& set = name == 'd' || name == 'D'   ? kDigits
                                  : name == 'w' || name == 'W' ? kWord
                                                               : kSpace;
        out.add(name < 'a' ? set.complement() : set);
        ++at_;
        return true;
      }
      case 'x':
        return hex(2, out);
      case 'u':
        return hex(4, out);
      case 'b':
      case 'B':
        return fail(in_class ? "\\b in a class is not supported" : "\\b and \\B are not supported");
      case 'p':
      case 'P':
        return fail("\\p is not supported");
      default:
        break;
    }
    if ((name >= '1' && name <= '9') || name == 'k') return fail("back-references are not supported");
    if ((name >= 'a' && name <= 'z') || (name >= 'A' && name <= 'Z'))
      return fail(std::string("the escape \\") + name + " is not supported");
    const uint32_t c = character();
    out.add(c, c);
    return true;
  }

  bool hex(size_t digits, CodePointSet& out) {
    ++at_;
    const bool braced = digits == 4 && take('{');
    const size_t end = braced ? text_.find('}', at_) : at_ + digits;
    uint32_t c = 0;
    if (end > text_.size() || end == at_) return fail("a hexadecimal escape lacks digits");
    auto [stop, ec] = std::from_chars(text_.data() + at_, text_.data() + end, c, 16);
    if (ec != std::errc() || stop != text_.data() + end) return fail("a hexadecimal escape lacks digits");
    if (c > CodePointSet::kMax || (c >= 0xD800 && c < 0xE000))
      return fail("a hexadecimal escape is no character (write one beyond U+FFFF as \\u{…})");
    at_ = end + (braced ? 1 : 0);
    out.add(c, c);
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
  Error error_;
};

class Builder {
 public:
  Builder(const std::vector<Piece>& pieces, Spelling spelling, size_t limit)
      : pieces_(pieces), spelling_(spelling), limit_(limit) {}

  Nfa nfa;

  // False when the automaton passes the limit: a bomb is noticed while it is built.
  bool build(uint32_t index, uint32_t from, uint32_t to) {
    if (nfa.size() > limit_) return false;
    const Piece& piece = pieces_[index];
    switch (piece.kind) {
      case Piece::Kind::empty:
        nfa.epsilon(from, to);
        return true;
      case Piece::Kind::set:
        nfa.character(from, piece.set, spelling_, to);
        return true;
      case Piece::Kind::sequence:
        for (uint32_t child : piece.children) {
          const uint32_t next = nfa.add_state();
          if (!build(child, from, next)) return false;
          from = next;
        }
        nfa.epsilon(from, to);
        return true;
      case Piece::Kind::choice:
        return std::all_of(piece.children.begin(), piece.children.end(),
                           [&](uint32_t child) { return build(child, from, to); });
      case Piece::Kind::repeat:
        return repeat(piece, from, to);
    }
    return true;
  }

 private:
  bool repeat(const Piece& piece, uint32_t from, uint32_t to) {
    const unsigned copies = piece.max == kUnbounded ? piece.min : piece.max;
    for (unsigned i = 0; i < copies; ++i) {
      const uint32_t next = nfa.add_state();
      if (i >= piece.min) nfa.epsilon(from, to);
      if (!build(piece.children[0], from, next)) return false;
      from = next;
    }
    if (piece.max == kUnbounded) {
      const uint32_t loop = nfa.add_state();
      nfa.epsilon(from, loop);
      if (!build(piece.children[0], loop, loop)) return false;
      from = loop;
    }
    nfa.epsilon(from, to);
    return true;
  }

  const std::vector<Piece>& pieces_;
  Spelling spelling_;
  size_t limit_;
};

}  // namespace

Result<ByteDfa> compile_regex(std::string_view pattern, const RegexOptions& options,
                              const DfaLimits& limits) {
  if (pattern.size() > kMaxPattern)
    return make_error(ErrorCode::invalid_request, "", "the pattern has {} bytes, the limit is {}",
                      pattern.size(), kMaxPattern);
  if (!tokenizer::is_utf8(pattern))
    return make_error(ErrorCode::invalid_request, "", "the pattern is not valid UTF-8");
  Parser parser(pattern);
  GODWIT_ASSIGN(const std::vector<Branch> branches, parser.branches());
  Builder builder(parser.pieces, options.spelling, limits.nfa_states);
  Nfa& nfa = builder.nfa;
  const uint32_t start = nfa.add_state();
  const uint32_t accept = nfa.add_state();
  const uint32_t open = options.quoted ? nfa.add_state() : start;
  const uint32_t close = options.quoted ? nfa.add_state() : accept;
  if (options.quoted) {
    nfa.text(start, "\"", open);
    nfa.text(close, "\"", accept);
  }
  const CodePointSet any = CodePointSet::all();
  for (const Branch& branch : branches) {
    const uint32_t from = nfa.add_state();
    const uint32_t to = nfa.add_state();
    nfa.epsilon(open, from);
    nfa.epsilon(to, close);
    if (options.search && !branch.from_start) nfa.character(from, any, options.spelling, from);
    if (options.search && !branch.to_end) nfa.character(to, any, options.spelling, to);
    if (!builder.build(branch.piece, from, to))
      return make_error(ErrorCode::invalid_request, "", "the pattern needs more than {} automaton states",
                        limits.nfa_states);
  }
  return nfa.determinize(start, accept, limits);
}

}  // namespace godwit::grammar
