// The values a template computes with: Python's, as far as api spec §2.12 needs them. A Value is a small
// handle; lists, dicts and built text live in the render's Heap and are freed with it, so cycles cannot leak.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "chat/jinja/text.h"

namespace godwit::chat::jinja {

struct Sequence;
struct Dict;
struct Macro;
struct Loop;
struct Method;
struct Function;

enum class Kind : uint8_t {
  undefined,
  none,
  boolean,
  integer,
  big_integer,  // decimal digits beyond 64 bits: printed, compared and dumped, never computed with
  real,
  text,
  list,
  tuple,
  range,
  view,      // dict.keys(), .values(), .items(): has a length, no index
  iterator,  // what generators give in Python: read once, always true, no length
  dict,
  name_space,
  macro,
  loop,
  method,
  function,
};

struct Value {
  Kind kind;
  Kind owner;  // of an undefined value: what lacked the member; Kind::undefined for a plain name
  union {
    bool boolean;
    int64_t integer;
    double real;
    Text text;  // also the digits of a big integer and the missing name of an undefined value
    Sequence* sequence;
    Dict* dict;
    Macro* macro;
    Loop* loop;
    Method* method;
    const Function* function;
  };

  Value() : Value(Kind::undefined) {}
  static Value none() { return Value(Kind::none); }
  static Value undefined(std::string_view name, Kind owner = Kind::undefined);
  static Value of(bool v);
  static Value of(int64_t v);
  static Value of(size_t v) { return of(static_cast<int64_t>(v)); }
  static Value of(double v);
  static Value of(Text v);
  static Value big(std::string_view digits);
  static Value of(Kind kind, Sequence* v);
  static Value of(Dict* v, Kind kind = Kind::dict);

  bool is_undefined() const { return kind == Kind::undefined; }
  bool is_none() const { return kind == Kind::none; }
  bool is_text() const { return kind == Kind::text; }
  bool is_dict() const { return kind == Kind::dict; }
  bool is_integral() const { return kind == Kind::integer || kind == Kind::boolean; }
  bool is_number() const { return is_integral() || kind == Kind::real || kind == Kind::big_integer; }
  bool is_sequence() const { return kind >= Kind::list && kind <= Kind::iterator; }
  int64_t as_integer() const { return kind == Kind::boolean ? static_cast<int64_t>(boolean) : integer; }
  double as_real() const;  // of any number

 private:
  explicit Value(Kind k) : kind(k), owner(Kind::undefined), text{nullptr, 0, nullptr, Origin::data} {}
};

struct Sequence {
  std::vector<Value> items;
  size_t next = 0;                        // of an iterator: items before it are consumed
  std::string_view type = {};             // of a view: "dict_items" …
  int64_t start = 0, stop = 0, step = 1;  // of a range, for printing
};

// Members in insertion order; a repeated key keeps its place (Python dict rule).
struct Dict {
  std::vector<std::pair<Value, Value>> members;

  Value* find(std::string_view key);
  Value* find(const Value& key);
  void set(const Value& key, const Value& value);
  bool erase(const Value& key);

 private:
  static constexpr size_t kLinear = 8;
  void index_all();
  std::unordered_map<std::string_view, size_t> index_;  // text keys, once there are more than kLinear members
};

// The state of one running `for` (the template's `loop`). Items are fetched one ahead only when asked for,
// because a filter (`for x in xs if …`) runs in step with the body.
struct Loop {
  std::function<bool()> fetch;  // moves one more accepted item into `ahead`; false at the end
  std::deque<Value> ahead;
  Value previous, current;
  Value changed_key;  // of loop.changed(): the tuple of the last call
  int64_t index0 = -1;
  size_t depth0 = 0;
  std::function<Value(const Value&)> recurse;  // `recursive` loops: renders the body over another list
};

bool is_true(const Value& v);
// Python's ==; undefined equals undefined only.
bool equal(const Value& a, const Value& b, size_t depth = 0);
// Python's <, for numbers, texts and sequences; fails on other pairs.
bool less(const Value& a, const Value& b, size_t depth = 0);
// Python type name for messages: "str", "dict", "NoneType"…
std::string_view type_name(const Value& v);
// Fails with Jinja's words for the use of an undefined value ("'x' is undefined", "'dict object' has no
// attribute 'x'").
[[noreturn]] void fail_undefined(const Value& v);

}  // namespace godwit::chat::jinja
