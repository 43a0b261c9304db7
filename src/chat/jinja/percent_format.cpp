#include "chat/jinja/percent_format.h"

#include <charconv>

#include "chat/jinja/failure.h"
#include "chat/jinja/print.h"
#include "chat/jinja/unicode.h"

namespace godwit::chat::jinja {
namespace {

constexpr size_t kMaxWidth = 4096;

struct Conversion {
  bool left = false, zero = false, space = false, plus = false;
  size_t width = 0;
  int precision = -1;
  char type = 0;
};

size_t read_number(std::string_view text, size_t& i) {
  size_t value = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    value = value * 10 + static_cast<size_t>(text[i] - '0');
    if (value > kMaxWidth) fail("format width or precision exceeds {}", kMaxWidth);
  }
  return value;
}

Conversion read_conversion(std::string_view text, size_t& i) {
  Conversion c;
  for (; i < text.size(); ++i) {
    if (text[i] == '-')
      c.left = true;
    else if (text[i] == '0')
      c.zero = true;
    else if (text[i] == ' ')
      c.space = true;
    else if (text[i] == '+')
      c.plus = true;
    else
      break;
  }
  c.width = read_number(text, i);
  if (i < text.size() && text[i] == '.') c.precision = static_cast<int>(read_number(text, ++i));
  if (i >= text.size()) fail("incomplete format");
  c.type = text[i++];
  return c;
}

std::string number(const Conversion& c, const Value& v) {
  if (!v.is_number()) fail("%{} format: a number is required, not {}", c.type, type_name(v));
  std::string digits;
  if (c.type == 'f' || c.type == 'F') {
    digits = fmt::format("{:.{}f}", v.as_real(), c.precision < 0 ? 6 : c.precision);
  } else if (v.kind == Kind::big_integer) {
    digits = std::string(v.text.view());
  } else if (v.kind == Kind::real && !(v.real > -9.2e18 && v.real < 9.2e18)) {
    fail("%{} format: {} does not fit a 64-bit integer", c.type, v.real);
  } else {
    const int64_t i = v.kind == Kind::real ? static_cast<int64_t>(v.real) : v.as_integer();
    digits = c.type == 'x' ? fmt::format("{:x}", i) : fmt::format("{}", i);
  }
  std::string sign;
  if (digits[0] == '-') {
    sign = "-";
    digits.erase(0, 1);
  } else if (c.plus || c.space) {
    sign = c.plus ? "+" : " ";
  }
  if (c.zero && !c.left && sign.size() + digits.size() < c.width) {
    digits.insert(0, c.width - sign.size() - digits.size(), '0');
  }
  return sign + digits;
}

Text converted(Runtime& runtime, const Conversion& c, const Value& v) {
  switch (c.type) {
    case 's': {
      const Text text = to_text(runtime, v);
      return c.precision < 0 ? text
                             : slice(text, 0, offset_of(text.view(), static_cast<size_t>(c.precision)));
    }
    case 'r': {
      std::string out;
      append_repr(runtime, out, v);
      return runtime.heap.own(std::move(out));
    }
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'f':
    case 'F':
      return runtime.heap.own(number(c, v));
    default:
      fail("unsupported format character '{}'", c.type);
  }
}

}  // namespace

Text percent_format(Runtime& runtime, const Text& format, const Value& values) {
  const std::string_view text = format.view();
  const bool is_tuple = values.kind == Kind::tuple;
  const size_t count = is_tuple ? values.sequence->items.size() : 1;
  size_t used = 0;
  Buffer& out = runtime.heap.buffer();
  for (size_t i = 0; i < text.size();) {
    const size_t mark = std::min(text.find('%', i), text.size());
    runtime.heap.append(out, slice(format, i, mark));
    i = mark + 1;
    if (mark >= text.size()) break;
    const Conversion c = read_conversion(text, i);
    if (c.type == '%') {
      runtime.heap.append(out, slice(format, mark, mark + 1));
      continue;
    }
    if (used >= count) fail("not enough arguments for format string");
    runtime.step();
    const Text part = converted(runtime, c, is_tuple ? values.sequence->items[used] : values);
    ++used;
    const size_t length = c.width > 0 ? count_code_points(part.view()) : 0;
    const std::string padding(c.width > length ? c.width - length : 0, ' ');
    if (!c.left) runtime.heap.append(out, padding, false);
    runtime.heap.append(out, part);
    if (c.left) runtime.heap.append(out, padding, false);
  }
  // A single mapping may go unused, as in Python.
  if (used < count && (is_tuple || !values.is_dict()))
    fail("not all arguments converted during string formatting");
  return out.whole();
}

Text brace_format(Runtime& runtime, const Text& format, const Arguments& arguments) {
  const std::string_view text = format.view();
  size_t automatic = 0;
  Buffer& out = runtime.heap.buffer();
  for (size_t i = 0; i < text.size();) {
    const size_t mark = std::min(text.find_first_of("{}", i), text.size());
    runtime.heap.append(out, slice(format, i, mark));
    if (mark >= text.size()) break;
    i = mark + 1;
    if (i < text.size() && text[i] == text[mark]) {  // {{ and }}
      runtime.heap.append(out, slice(format, mark, i));
      ++i;
      continue;
    }
    const size_t close = text.find('}', i);
    if (text[mark] == '}' || close == std::string_view::npos)
      fail("single '{}' in format string", text[mark]);
    const std::string_view field = text.substr(i, close - i);
    i = close + 1;
    runtime.step();
    size_t position = automatic;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), position);
    const Value* value = nullptr;
    if (field.empty() || (error == std::errc() && end == field.data() + field.size())) {
      if (field.empty()) ++automatic;
      if (position < arguments.positional.size()) value = &arguments.positional[position];
    } else {
      for (const auto& [name, keyword] : arguments.keywords) {
        if (name == field) value = &keyword;
      }
    }
    if (value == nullptr)
      fail("format field '{}' has no argument (attributes and specifications are not supported)", field);
    runtime.heap.append(out, to_text(runtime, *value));
  }
  return out.whole();
}

}  // namespace godwit::chat::jinja
