// str methods.
#include "chat/jinja/access.h"
#include "chat/jinja/failure.h"
#include "chat/jinja/filters.h"
#include "chat/jinja/percent_format.h"
#include "chat/jinja/registry.h"
#include "chat/jinja/text_operations.h"
#include "chat/jinja/unicode.h"

namespace godwit::chat::jinja {
namespace {

template <Side side>
Value strip_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("strip", {"chars"});
  if (arguments.find(0) == nullptr || arguments.find(0)->is_none()) {
    return Value::of(strip(runtime, self.text, side, nullptr));
  }
  const Text characters = arguments.text(0);
  return Value::of(strip(runtime, self.text, side, &characters));
}

template <bool from_right>
Value split_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("split", {"sep", "maxsplit"});
  const int64_t limit = arguments.integer(1, -1);
  if (arguments.find(0) == nullptr || arguments.find(0)->is_none()) {
    return Value::of(Kind::list, &split(runtime, self.text, nullptr, limit, from_right));
  }
  const Text separator = arguments.text(0);
  return Value::of(Kind::list, &split(runtime, self.text, &separator, limit, from_right));
}

Value split_lines_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("splitlines", {"keepends"});
  return Value::of(Kind::list, &split_lines(runtime, self.text, arguments.flag(0, false)));
}

template <bool at_start>
Value affix_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind(at_start ? "startswith" : "endswith", {"affix"}, 1);
  const auto matches = [&](const Value& v) {
    if (!v.is_text()) fail("startswith/endswith need a string or a tuple of strings, not {}", type_name(v));
    return at_start ? self.text.view().starts_with(v.text.view()) : self.text.view().ends_with(v.text.view());
  };
  const Value& affix = *arguments.find(0);
  if (affix.kind != Kind::tuple) return Value::of(matches(affix));
  for (const Value& v : affix.sequence->items) {
    runtime.step();
    if (matches(v)) return Value::of(true);
  }
  return Value::of(false);
}

template <bool prefix>
Value remove_affix(Runtime&, const Value& self, Arguments& arguments) {
  arguments.bind(prefix ? "removeprefix" : "removesuffix", {"affix"}, 1);
  const std::string_view affix = arguments.text(0).view();
  const Text& text = self.text;
  if (prefix && text.view().starts_with(affix)) return Value::of(slice(text, affix.size(), text.size));
  if (!prefix && text.view().ends_with(affix)) return Value::of(slice(text, 0, text.size - affix.size()));
  return self;
}

Value replace_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("replace", {"old", "new", "count"}, 2);
  return Value::of(
      replace(runtime, self.text, arguments.text(0), arguments.text(1), arguments.integer(2, -1)));
}

Value format_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Value::of(brace_format(runtime, self.text, arguments));
}

template <Case to>
Value case_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("case method", {});
  return Value::of(change_case(runtime, self.text, to));
}

Value join_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("join", {"iterable"}, 1);
  return Value::of(join(runtime, self.text, collect(runtime, *arguments.find(0)), true));
}

template <bool from_right>
Value find_method_body(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("find", {"sub"}, 1);
  runtime.scan(self.text.size);
  const std::string_view text = self.text.view(), part = arguments.text(0).view();
  const size_t hit = from_right ? text.rfind(part) : text.find(part);
  if (hit == std::string_view::npos) return Value::of(int64_t{-1});
  return Value::of(count_code_points(text.substr(0, hit)));
}

Value count_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("count", {"sub"}, 1);
  runtime.scan(self.text.size);
  const std::string_view text = self.text.view(), part = arguments.text(0).view();
  if (part.empty()) return Value::of(count_code_points(text) + 1);
  int64_t n = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++n;
  return Value::of(n);
}

bool is_ascii_digit(char32_t c) {
  return c >= '0' && c <= '9';
}
bool is_alphanumeric(char32_t c) {
  return is_letter(c) || is_ascii_digit(c);
}

// All characters satisfy `want`, and there is one. Digits are the ASCII ones.
template <bool (*want)(char32_t)>
Value all_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("character test", {});
  runtime.scan(self.text.size);
  const std::string_view text = self.text.view();
  for (size_t at = 0; at < text.size();) {
    if (!want(next_code_point(text, at))) return Value::of(false);
  }
  return Value::of(!text.empty());
}

template <bool upper>
Value cased_method(Runtime& runtime, const Value& self, Arguments&) {
  Arguments none;
  return Value::of(apply_test(runtime, upper ? "upper" : "lower", self, none));
}

constexpr Entry<MethodBody> kMethods[] = {
    {"strip", strip_method<Side::both>},
    {"lstrip", strip_method<Side::left>},
    {"rstrip", strip_method<Side::right>},
    {"split", split_method<false>},
    {"rsplit", split_method<true>},
    {"splitlines", split_lines_method},
    {"startswith", affix_method<true>},
    {"endswith", affix_method<false>},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
    {"replace", replace_method},
    {"format", format_method},
    {"lower", case_method<Case::lower>},
    {"upper", case_method<Case::upper>},
    {"title", case_method<Case::title_words>},
    {"capitalize", case_method<Case::capitalize>},
    {"join", join_method},
    {"find", find_method_body<false>},
    {"rfind", find_method_body<true>},
    {"count", count_method},
    {"isdigit", all_method<is_ascii_digit>},
    {"isalpha", all_method<is_letter>},
    {"isalnum", all_method<is_alphanumeric>},
    {"isspace", all_method<is_space>},
    {"isupper", cased_method<true>},
    {"islower", cased_method<false>},
};

}  // namespace

MethodBody find_text_method(std::string_view name) {
  return find_entry(kMethods, name);
}

}  // namespace godwit::chat::jinja
