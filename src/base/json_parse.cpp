// Parsing: simdjson finds the structure and checks UTF-8; scalars are read here, because simdjson refuses
// what must survive (integers beyond 64 bits, lone surrogates).
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/json.h"

namespace godwit {
namespace {

namespace ondemand = simdjson::ondemand;

// simdjson's own nesting limit; a caller's larger limit is lowered to it.
constexpr size_t kMaxDepth = 1000;

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  return text;
}

void append_utf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += {static_cast<char>(0xc0 | (c >> 6)), static_cast<char>(0x80 | (c & 63))};
  } else if (c < 0x10000) {
    out += {static_cast<char>(0xe0 | (c >> 12)), static_cast<char>(0x80 | ((c >> 6) & 63)),
            static_cast<char>(0x80 | (c & 63))};
  } else {
    out += {static_cast<char>(0xf0 | (c >> 18)), static_cast<char>(0x80 | ((c >> 12) & 63)),
            static_cast<char>(0x80 | ((c >> 6) & 63)), static_cast<char>(0x80 | (c & 63))};
  }
}

class Reader {
 public:
  explicit Reader(const JsonLimits& limits)
      : depth_(std::min(limits.depth, kMaxDepth)), max_values_(limits.values) {}

  Result<Json> document(std::string_view text) {
    std::string_view body = trim(text);
    if (body.empty()) return make_error(ErrorCode::invalid_request, "", "the JSON document is empty");
    base_ = text.data();
    size_ = text.size();
    Json out;
    bool ok = body.front() == '[' || body.front() == '{' ? container(text, out) : root_scalar(body, out);
    if (!ok) return std::move(error_);
    return out;
  }

 private:
  // A lone scalar needs no structure: all of `body` must be its token.
  bool root_scalar(std::string_view body, Json& out) {
    if (!simdjson::validate_utf8(body.data(), body.size()))
      return fail(body.data(), "the text is not valid UTF-8");
    return count(body.data()) && scalar(body, out);
  }

  bool container(std::string_view text, Json& out) {
    simdjson::padded_string padded(text);
    base_ = padded.data();
    ondemand::parser parser;
    ondemand::document doc;
    if (auto e = parser.iterate(padded).get(doc)) return refuse(e);
    doc_ = &doc;
    ondemand::value root;
    if (auto e = doc.get_value().get(root)) return refuse(e);
    if (!value(root, 1, out)) return false;
    const char* rest = nullptr;  // there is no location beyond the last token
    if (doc.current_location().get(rest) == simdjson::OUT_OF_BOUNDS) return true;
    return fail(rest, "there is text after the end of the document");
  }

  // `depth` is the nesting of containers if `v` is one; the recursion is bounded by it.
  bool value(ondemand::value v, size_t depth, Json& out) {
    std::string_view token = v.raw_json_token();
    if (!count(token.data())) return false;
    if (token.front() != '[' && token.front() != '{') return scalar(trim(token), out);
    if (depth > depth_)
      return fail(token.data(), fmt::format("nesting is deeper than the limit of {}", depth_));
    return token.front() == '[' ? array(v, depth, out) : object(v, depth, out);
  }

  bool array(ondemand::value v, size_t depth, Json& out) {
    ondemand::array items;
    if (auto e = v.get_array().get(items)) return refuse(e);
    out = JsonArray();
    JsonArray& array = out.as_array();
    for (auto item : items) {
      ondemand::value element;
      if (auto e = item.get(element)) return refuse(e);
      if (!value(element, depth + 1, array.emplace_back())) return false;
    }
    return true;
  }

  bool object(ondemand::value v, size_t depth, Json& out) {
    ondemand::object fields;
    if (auto e = v.get_object().get(fields)) return refuse(e);
    out = JsonObject();
    JsonObject& object = out.as_object();
    std::string key;
    for (auto field : fields) {
      ondemand::raw_json_string raw;
      ondemand::value member;
      if (auto e = field.key().get(raw)) return refuse(e);
      if (auto e = field.value().get(member)) return refuse(e);
      key.clear();
      const char* at = raw.raw();
      if (!unescape(at, base_ + size_, key)) return false;
      if (!value(member, depth + 1, object[key])) return false;
    }
    return true;
  }

  bool scalar(std::string_view token, Json& out) {
    if (token.front() == '"') {
      std::string text;
      const char* at = token.data() + 1;
      const char* end = token.data() + token.size();
      if (!unescape(at, end, text)) return false;
      if (at != end) return fail(at, "there is text after a string");
      out = std::move(text);
      return true;
    }
    if (token == "true" || token == "false") {
      out = token == "true";
      return true;
    }
    if (token == "null") {
      out = nullptr;
      return true;
    }
    return number(token, out);
  }

  bool number(std::string_view token, Json& out) {
    const char* p = token.data();
    const char* end = p + token.size();
    if (p != end && *p == '-') ++p;
    const char* integer = p;
    while (p != end && is_digit(*p)) ++p;
    if (p == integer || (*integer == '0' && p - integer > 1))
      return fail(integer, "a value cannot start here");
    bool real = false;
    for (int part = 0; part < 2; ++part) {  // fraction, then exponent
      if (p == end || !(part == 0 ? *p == '.' : *p == 'e' || *p == 'E')) continue;
      real = true;
      ++p;
      if (part == 1 && p != end && (*p == '+' || *p == '-')) ++p;
      const char* digits = p;
      while (p != end && is_digit(*p)) ++p;
      if (p == digits) return fail(p, "a number lacks digits here");
    }
    if (p != end) return fail(p, "there is text after a number");
    return real ? read_real(token, out) : read_integer(token, out);
  }

  bool read_integer(std::string_view token, Json& out) {
    int64_t n = 0;
    auto end = std::from_chars(token.data(), token.data() + token.size(), n);
    out = end.ec == std::errc() ? Json(n) : Json::big_integer(std::string(token));
    return true;
  }

  bool read_real(std::string_view token, Json& out) {
    double x = 0;
    auto end = std::from_chars(token.data(), token.data() + token.size(), x);
    if (end.ec == std::errc::result_out_of_range) {
      if (overflows(token)) return fail(token.data(), "a number is larger than a double can hold");
      x = token.front() == '-' ? -0.0 : 0.0;
    }
    out = x;
    return true;
  }

  // Of a number from_chars found out of range: whether it is too large rather than too small.
  static bool overflows(std::string_view token) {
    size_t e = token.find_first_of("eE");
    int64_t exponent = 0;
    if (e != token.npos) {
      size_t first = e + (token[e + 1] == '+' ? 2 : 1);
      auto end = std::from_chars(token.data() + first, token.data() + token.size(), exponent);
      if (end.ec != std::errc()) return token[e + 1] != '-';
    }
    std::string_view mantissa = token.substr(0, e);
    size_t point = std::min(mantissa.find('.'), mantissa.size());
    size_t lead = mantissa.find_first_of("123456789");
    return exponent + static_cast<int64_t>(point) - static_cast<int64_t>(lead) > 0;
  }

  // Reads a string from after its opening quote; leaves `at` after the closing one.
  bool unescape(const char*& at, const char* end, std::string& out) {
    while (at < end) {
      const char* run = at;
      while (at < end && *at != '"' && *at != '\\' && static_cast<unsigned char>(*at) >= 0x20) ++at;
      out.append(run, at);
      if (at >= end) break;
      if (*at == '"') {
        ++at;
        return true;
      }
      if (*at != '\\') return fail(at, "a control character in a string must be escaped");
      if (!escape(at, end, out)) return false;
    }
    return fail(at, "a string is not closed");
  }

  bool escape(const char*& at, const char* end, std::string& out) {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
    if (end - at < 2) return fail(at, "a string is not closed");
    if (size_t i = kNames.find(at[1]); i != kNames.npos) {
      out += kValues[i];
      at += 2;
      return true;
    }
    uint32_t c = 0;
    if (!code_unit(at, end, c)) return fail(at, "unknown escape sequence in a string");
    at += 6;
    if (c >= 0xd800 && c < 0xe000) {
      uint32_t low = 0;
      if (c < 0xdc00 && code_unit(at, end, low) && low >= 0xdc00 && low < 0xe000) {
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        at += 6;
      } else {
        c = 0xfffd;  // a lone surrogate has no UTF-8 form (api spec §1.3)
      }
    }
    append_utf8(out, c);
    return true;
  }

  // The four hexadecimal digits of \uXXXX at `at`; false when that is not what stands there.
  static bool code_unit(const char* at, const char* end, uint32_t& unit) {
    if (end - at < 6 || at[0] != '\\' || at[1] != 'u') return false;
    auto [stop, ec] = std::from_chars(at + 2, at + 6, unit, 16);
    return ec == std::errc() && stop == at + 6;
  }

  bool count(const char* at) {
    if (++values_ <= max_values_) return true;
    return fail(at, fmt::format("the document has more than {} values", max_values_));
  }

  bool refuse(simdjson::error_code code) {
    const char* at = nullptr;
    if (doc_ == nullptr || doc_->current_location().get(at)) at = nullptr;
    return fail(at, simdjson::error_message(code));
  }

  bool fail(const char* at, std::string_view what) {
    if (at >= base_ && at <= base_ + size_) {
      error_ = make_error(ErrorCode::invalid_request, "", "invalid JSON at byte {}: {}", at - base_, what);
    } else {
      error_ = make_error(ErrorCode::invalid_request, "", "invalid JSON: {}", what);
    }
    return false;
  }

  size_t depth_;
  size_t max_values_;
  size_t values_ = 0;           // so far
  const char* base_ = nullptr;  // start of the text that pointers refer to
  size_t size_ = 0;
  ondemand::document* doc_ = nullptr;  // while its parser lives
  Error error_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  return Reader(limits).document(text);
}

}  // namespace godwit
