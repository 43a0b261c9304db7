// Filters over whole lists and dicts.
#include <algorithm>

#include "chat/jinja/access.h"
#include "chat/jinja/attribute_path.h"
#include "chat/jinja/failure.h"
#include "chat/jinja/filters.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/print.h"
#include "chat/jinja/registry.h"
#include "chat/jinja/text_operations.h"
#include "chat/jinja/unicode.h"

namespace godwit::chat::jinja {
namespace {

// What sort, unique, min, max and dictsort compare: texts without regard to case unless asked.
Value sort_key(Runtime& runtime, const Value& v, bool case_sensitive) {
  return v.is_text() && !case_sensitive ? Value::of(change_case(runtime, v.text, Case::lower)) : v;
}

Value length(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.bind("length", {});
  return Value::of(length_of(runtime, input));
}

Value list(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.bind("list", {});
  return Value::of(Kind::list, &collect(runtime, input));
}

Value first(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.bind("first", {});
  Sequence& items = iterate(runtime, input);
  const size_t at = input.kind == Kind::iterator ? items.next : 0;
  if (at >= items.items.size()) return Value::undefined("first item of an empty sequence");
  if (input.kind == Kind::iterator) ++items.next;
  return items.items[at];
}

Value last(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.bind("last", {});
  if (input.kind == Kind::iterator) fail("'generator' object is not reversible");
  const Sequence& items = iterate(runtime, input);
  return items.items.empty() ? Value::undefined("last item of an empty sequence") : items.items.back();
}

Value join_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.bind("join", {"d", "attribute"});
  const Text separator =
      arguments.find(0) == nullptr ? source_text("") : to_text(runtime, *arguments.find(0));
  Sequence& items = collect(runtime, input);
  if (const Value* attribute = arguments.find(1); attribute != nullptr && !attribute->is_none()) {
    for (Value& item : items.items) item = follow_path(runtime, item, *attribute);
  }
  return Value::of(join(runtime, separator, items, false));
}

Value reverse(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.bind("reverse", {});
  if (input.is_text()) return get_slice(runtime, input, Value::none(), Value::none(), Value::of(int64_t{-1}));
  Sequence& items = collect(runtime, input);
  std::reverse(items.items.begin(), items.items.end());
  return Value::of(Kind::iterator, &items);
}

Value items_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.bind("items", {});
  if (!input.is_undefined() && !input.is_dict())
    fail("can only get item pairs from a mapping, not {}", type_name(input));
  Sequence& out = runtime.heap.sequence();
  if (input.is_dict()) {
    for (const auto& [key, value] : input.dict->members) runtime.heap.add(out, runtime.heap.pair(key, value));
  }
  return Value::of(Kind::iterator, &out);
}

// Sorts `items` by `keys`, item i having key i; stable in both directions, as Python's sort.
void sort_by(Runtime& runtime, Sequence& items, const std::vector<Value>& keys, bool reversed) {
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    runtime.step();
    return reversed ? less(keys[b], keys[a]) : less(keys[a], keys[b]);
  });
  std::vector<Value> sorted;
  sorted.reserve(order.size());
  for (const size_t i : order) sorted.push_back(items.items[i]);
  items.items = std::move(sorted);
}

std::vector<Value> sort_keys(Runtime& runtime, const Sequence& items, const Value* attribute,
                             bool case_sensitive) {
  std::vector<Value> keys;
  runtime.heap.charge(items.items.size() * sizeof(Value));
  keys.reserve(items.items.size());
  for (const Value& item : items.items) {
    const bool plain = attribute == nullptr || attribute->is_none();
    keys.push_back(sort_key(runtime, plain ? item : follow_path(runtime, item, *attribute), case_sensitive));
  }
  return keys;
}

Value sort(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.bind("sort", {"reverse", "case_sensitive", "attribute"});
  Sequence& items = collect(runtime, input);
  const auto keys = sort_keys(runtime, items, arguments.find(2), arguments.flag(1, false));
  sort_by(runtime, items, keys, arguments.flag(0, false));
  return Value::of(Kind::list, &items);
}

Value dictsort(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.bind("dictsort", {"case_sensitive", "by", "reverse"});
  if (input.is_undefined()) fail_undefined(input);
  if (!input.is_dict()) fail("dictsort needs a mapping, not {}", type_name(input));
  const std::string_view by = arguments.find(1) == nullptr ? "key" : arguments.text(1).view();
  if (by != "key" && by != "value") fail("dictsort: 'by' must be key or value, not '{}'", by);
  Sequence& items = runtime.heap.sequence();
  std::vector<Value> keys;
  for (const auto& [key, value] : input.dict->members) {
    runtime.heap.add(items, runtime.heap.pair(key, value));
    keys.push_back(sort_key(runtime, by == "key" ? key : value, arguments.flag(0, false)));
  }
  sort_by(runtime, items, keys, arguments.flag(2, false));
  return Value::of(Kind::list, &items);
}

Value unique(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.bind("unique", {"case_sensitive", "attribute"});
  const Sequence& items = collect(runtime, input);
  const auto keys = sort_keys(runtime, items, arguments.find(1), arguments.flag(0, false));
  Sequence& out = runtime.heap.sequence();
  Dict& seen = runtime.heap.dict();
  for (size_t i = 0; i < keys.size(); ++i) {
    runtime.step(keys[i].is_text() ? 1 : 1 + seen.members.size());
    if (seen.find(keys[i]) != nullptr) continue;
    runtime.heap.set(seen, keys[i], Value::none());
    runtime.heap.add(out, items.items[i]);
  }
  return Value::of(Kind::iterator, &out);
}

template <bool largest>
Value extreme(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.bind(largest ? "max" : "min", {"case_sensitive", "attribute"});
  const Sequence& items = collect(runtime, input);
  if (items.items.empty()) return Value::undefined("extreme item of an empty sequence");
  const auto keys = sort_keys(runtime, items, arguments.find(1), arguments.flag(0, false));
  size_t best = 0;
  for (size_t i = 1; i < keys.size(); ++i) {
    if (largest ? less(keys[best], keys[i]) : less(keys[i], keys[best])) best = i;
  }
  return items.items[best];
}

Value sum(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.bind("sum", {"attribute", "start"});
  Value total = arguments.find(1) == nullptr ? Value::of(int64_t{0}) : *arguments.find(1);
  const Value* attribute = arguments.find(0);
  for (const Value& item : collect(runtime, input).items) {
    const bool plain = attribute == nullptr || attribute->is_none();
    total =
        apply_binary(runtime, Operator::add, total, plain ? item : follow_path(runtime, item, *attribute));
  }
  return total;
}

constexpr Entry<FilterBody> kFilters[] = {
    {"length", length},     {"count", length},      {"list", list},       {"first", first},
    {"last", last},         {"join", join_filter},  {"reverse", reverse}, {"items", items_filter},
    {"sort", sort},         {"dictsort", dictsort}, {"unique", unique},   {"min", extreme<false>},
    {"max", extreme<true>}, {"sum", sum},
};

}  // namespace

FilterBody find_list_filter(std::string_view name) {
  return find_entry(kFilters, name);
}

}  // namespace godwit::chat::jinja
