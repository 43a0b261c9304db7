// The `is` tests.
#include <cmath>

#include "chat/jinja/access.h"
#include "chat/jinja/failure.h"
#include "chat/jinja/filters.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/print.h"
#include "chat/jinja/registry.h"
#include "chat/jinja/unicode.h"

namespace godwit::chat::jinja {
namespace {

using Predicate = bool (*)(const Value&);

int64_t remainder(Runtime& runtime, const Value& v, int64_t divisor) {
  const Value r = apply_binary(runtime, Operator::modulo, v, Value::of(divisor));
  if (!r.is_integral())
    return r.kind == Kind::real && r.real == std::floor(r.real) ? static_cast<int64_t>(r.real) : -1;
  return r.as_integer();
}

// True when `text` has cased letters and all of them satisfy `want`.
bool is_cased(Runtime& runtime, const Value& v, bool (*want)(char32_t)) {
  const Text text = to_text(runtime, v);
  runtime.scan(text.size);
  bool any = false;
  for (size_t at = 0; at < text.size;) {
    const char32_t c = next_code_point(text.view(), at);
    if (!is_upper(c) && !is_lower(c)) continue;
    if (!want(c)) return false;
    any = true;
  }
  return any;
}

// What sameas sees as one object: Python's singletons by value, everything else by identity.
bool is_same(const Value& a, const Value& b) {
  if (a.kind != b.kind) return false;
  if (a.is_text()) return a.text.view() == b.text.view();
  return equal(a, b) && (!a.is_sequence() || a.sequence == b.sequence) && (!a.is_dict() || a.dict == b.dict);
}

template <Operator op>
bool compares(Runtime& runtime, const Value& v, Arguments& arguments) {
  arguments.bind("test", {"other"}, 1);
  return compare(runtime, op, v, *arguments.find(0));
}

constexpr Entry<Predicate> kPredicates[] = {
    {"defined", [](const Value& v) { return !v.is_undefined(); }},
    {"undefined", [](const Value& v) { return v.is_undefined(); }},
    {"none", [](const Value& v) { return v.is_none(); }},
    {"string", [](const Value& v) { return v.is_text(); }},
    {"mapping", [](const Value& v) { return v.is_dict(); }},
    {"iterable",
     [](const Value& v) { return v.is_text() || v.is_sequence() || v.is_dict() || v.is_undefined(); }},
    {"sequence",
     [](const Value& v) {
       return v.is_text() || v.is_dict() || v.is_undefined() ||
              (v.is_sequence() && v.kind != Kind::iterator && v.kind != Kind::view);
     }},
    {"true", [](const Value& v) { return v.kind == Kind::boolean && v.boolean; }},
    {"false", [](const Value& v) { return v.kind == Kind::boolean && !v.boolean; }},
    {"boolean", [](const Value& v) { return v.kind == Kind::boolean; }},
    {"number", [](const Value& v) { return v.is_number(); }},
    {"integer", [](const Value& v) { return v.kind == Kind::integer || v.kind == Kind::big_integer; }},
    {"float", [](const Value& v) { return v.kind == Kind::real; }},
    {"callable", [](const Value& v) { return v.kind >= Kind::macro || v.is_undefined(); }},
};

constexpr Entry<TestBody> kTests[] = {
    {"odd", [](Runtime& r, const Value& v, Arguments&) { return remainder(r, v, 2) == 1; }},
    {"even", [](Runtime& r, const Value& v, Arguments&) { return remainder(r, v, 2) == 0; }},
    {"divisibleby",
     [](Runtime& r, const Value& v, Arguments& arguments) {
       arguments.bind("divisibleby", {"num"}, 1);
       return remainder(r, v, arguments.integer(0, 1)) == 0;
     }},
    {"lower", [](Runtime& r, const Value& v, Arguments&) { return is_cased(r, v, is_lower); }},
    {"upper", [](Runtime& r, const Value& v, Arguments&) { return is_cased(r, v, is_upper); }},
    {"sameas",
     [](Runtime&, const Value& v, Arguments& arguments) {
       arguments.bind("sameas", {"other"}, 1);
       return is_same(v, *arguments.find(0));
     }},
    {"in", compares<Operator::in>},
    {"==", compares<Operator::equal>},
    {"eq", compares<Operator::equal>},
    {"equalto", compares<Operator::equal>},
    {"!=", compares<Operator::not_equal>},
    {"ne", compares<Operator::not_equal>},
    {"<", compares<Operator::less>},
    {"lt", compares<Operator::less>},
    {"lessthan", compares<Operator::less>},
    {"<=", compares<Operator::less_equal>},
    {"le", compares<Operator::less_equal>},
    {">", compares<Operator::greater>},
    {"gt", compares<Operator::greater>},
    {"greaterthan", compares<Operator::greater>},
    {">=", compares<Operator::greater_equal>},
    {"ge", compares<Operator::greater_equal>},
};

}  // namespace

bool apply_test(Runtime& runtime, std::string_view name, const Value& input, Arguments& arguments) {
  runtime.step();
  if (const Predicate predicate = find_entry(kPredicates, name)) {
    arguments.bind(name, {});
    return predicate(input);
  }
  if (const TestBody body = find_entry(kTests, name)) return body(runtime, input, arguments);
  fail("no test named '{}'", name);
}

}  // namespace godwit::chat::jinja
