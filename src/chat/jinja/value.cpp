#include "chat/jinja/value.h"

#include <algorithm>
#include <cstdlib>

#include "chat/jinja/failure.h"

namespace godwit::chat::jinja {
namespace {

constexpr size_t kCompareDepth = 64;

bool text_equals(const Value& v, std::string_view text) {
  return v.is_text() && v.text.view() == text;
}

bool integers(const Value& a, const Value& b) {
  return a.is_integral() && b.is_integral();
}

bool digits_less(std::string_view a, std::string_view b) {
  const bool negative_a = a[0] == '-', negative_b = b[0] == '-';
  if (negative_a != negative_b) return negative_a;
  const bool smaller = a.size() != b.size() ? a.size() < b.size() : a < b;
  return negative_a ? a != b && !smaller : smaller;
}

bool comparable(const Value& a, const Value& b) {
  return a.kind == b.kind && (a.kind == Kind::list || a.kind == Kind::tuple);
}

}  // namespace

Value Value::undefined(std::string_view name, Kind owner) {
  Value v;
  v.owner = owner;
  v.text = data_text(name);
  return v;
}
Value Value::of(bool b) {
  Value v(Kind::boolean);
  v.boolean = b;
  return v;
}
Value Value::of(int64_t i) {
  Value v(Kind::integer);
  v.integer = i;
  return v;
}
Value Value::of(double d) {
  Value v(Kind::real);
  v.real = d;
  return v;
}
Value Value::of(Text t) {
  Value v(Kind::text);
  v.text = t;
  return v;
}
Value Value::big(std::string_view digits) {
  Value v(Kind::big_integer);
  v.text = data_text(digits);
  return v;
}
Value Value::of(Kind kind, Sequence* s) {
  Value v(kind);
  v.sequence = s;
  return v;
}
Value Value::of(Dict* d, Kind kind) {
  Value v(kind);
  v.dict = d;
  return v;
}

double Value::as_real() const {
  if (kind == Kind::real) return real;
  if (kind == Kind::big_integer) return std::strtod(std::string(text.view()).c_str(), nullptr);
  return static_cast<double>(as_integer());
}

Value* Dict::find(std::string_view key) {
  if (!index_.empty()) {
    const auto it = index_.find(key);
    return it == index_.end() ? nullptr : &members[it->second].second;
  }
  for (auto& [name, value] : members) {
    if (text_equals(name, key)) return &value;
  }
  return nullptr;
}

Value* Dict::find(const Value& key) {
  if (key.is_text()) return find(key.text.view());
  for (auto& [name, value] : members) {
    if (equal(name, key)) return &value;
  }
  return nullptr;
}

void Dict::index_all() {
  index_.clear();
  if (members.size() <= kLinear) return;
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i].first.is_text()) index_.emplace(members[i].first.text.view(), i);
  }
}

void Dict::set(const Value& key, const Value& value) {
  if (Value* old = find(key)) {
    *old = value;
    return;
  }
  members.emplace_back(key, value);
  if (index_.empty()) {
    if (members.size() > kLinear) index_all();
  } else if (key.is_text()) {
    index_.emplace(key.text.view(), members.size() - 1);
  }
}

bool Dict::erase(const Value& key) {
  const auto it =
      std::find_if(members.begin(), members.end(), [&](const auto& m) { return equal(m.first, key); });
  if (it == members.end()) return false;
  members.erase(it);
  index_all();
  return true;
}

bool is_true(const Value& v) {
  switch (v.kind) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return v.boolean;
    case Kind::integer:
      return v.integer != 0;
    case Kind::real:
      return v.real != 0;
    case Kind::text:
      return v.text.size > 0;
    case Kind::list:
    case Kind::tuple:
    case Kind::range:
    case Kind::view:
      return !v.sequence->items.empty();
    case Kind::dict:
      return !v.dict->members.empty();
    default:
      return true;
  }
}

bool equal(const Value& a, const Value& b, size_t depth) {
  if (depth > kCompareDepth) fail("values nested deeper than {} cannot be compared", kCompareDepth);
  if (a.is_number() && b.is_number()) {
    if (integers(a, b)) return a.as_integer() == b.as_integer();
    if (a.kind == Kind::big_integer && b.kind == Kind::big_integer) return a.text.view() == b.text.view();
    if (a.kind == Kind::real || b.kind == Kind::real) return a.as_real() == b.as_real();
    return false;  // a big integer never fits 64 bits
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::text:
      return a.text.view() == b.text.view();
    case Kind::list:
    case Kind::tuple:
    case Kind::range:
      return a.sequence == b.sequence ||
             std::equal(a.sequence->items.begin(), a.sequence->items.end(), b.sequence->items.begin(),
                        b.sequence->items.end(),
                        [&](const Value& x, const Value& y) { return equal(x, y, depth + 1); });
    case Kind::dict:
      if (a.dict == b.dict) return true;
      if (a.dict->members.size() != b.dict->members.size()) return false;
      return std::all_of(a.dict->members.begin(), a.dict->members.end(), [&](const auto& member) {
        const Value* other = b.dict->find(member.first);
        return other != nullptr && equal(member.second, *other, depth + 1);
      });
    case Kind::view:
    case Kind::iterator:
      return a.sequence == b.sequence;
    case Kind::name_space:
      return a.dict == b.dict;
    case Kind::macro:
      return a.macro == b.macro;
    case Kind::loop:
      return a.loop == b.loop;
    case Kind::method:
      return a.method == b.method;
    default:
      return a.function == b.function;
  }
}

bool less(const Value& a, const Value& b, size_t depth) {
  if (depth > kCompareDepth) fail("values nested deeper than {} cannot be compared", kCompareDepth);
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (integers(a, b)) return a.as_integer() < b.as_integer();
  if (a.is_number() && b.is_number()) {
    if (a.kind == Kind::real || b.kind == Kind::real) return a.as_real() < b.as_real();
    if (a.kind != b.kind)
      return a.kind == Kind::big_integer ? a.text.view()[0] == '-' : b.text.view()[0] != '-';
    return digits_less(a.text.view(), b.text.view());
  }
  if (a.is_text() && b.is_text()) return a.text.view() < b.text.view();  // UTF-8 sorts as code points do
  if (comparable(a, b)) {
    return std::lexicographical_compare(
        a.sequence->items.begin(), a.sequence->items.end(), b.sequence->items.begin(),
        b.sequence->items.end(), [&](const Value& x, const Value& y) { return less(x, y, depth + 1); });
  }
  fail("'<' is not supported between '{}' and '{}'", type_name(a), type_name(b));
}

std::string_view type_name(const Value& v) {
  switch (v.kind) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
    case Kind::big_integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::text:
      return "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::range:
      return "range";
    case Kind::view:
      return v.sequence->type;
    case Kind::iterator:
      return "generator";
    case Kind::dict:
      return "dict";
    case Kind::name_space:
      return "Namespace";
    case Kind::macro:
      return "Macro";
    case Kind::loop:
      return "LoopContext";
    case Kind::method:
      return "method";
    case Kind::function:
      return "function";
  }
  return "?";
}

void fail_undefined(const Value& v) {
  const std::string_view name = v.text.view();
  if (v.owner == Kind::undefined) fail("'{}' is undefined", name);
  Value owner;
  owner.kind = v.owner;
  static Sequence view{{}, 0, "dict view"};
  if (owner.kind == Kind::view) owner.sequence = &view;
  if (owner.kind == Kind::none) fail("'None' has no attribute '{}'", name);
  fail("'{} object' has no attribute '{}'", type_name(owner), name);
}

}  // namespace godwit::chat::jinja
