// Methods of list, dict and loop. Of the mutating ones only append and pop: published templates rely on them
// although the immutable sandbox of transformers forbids them (api spec §2.12 (b)).
#include "chat/jinja/access.h"
#include "chat/jinja/failure.h"
#include "chat/jinja/registry.h"

namespace godwit::chat::jinja {
namespace {

Value dict_view(Runtime& runtime, const Value& self, std::string_view type) {
  Sequence& out = runtime.heap.sequence(self.dict->members.size());
  out.type = type;
  for (const auto& [key, value] : self.dict->members) {
    runtime.step();
    runtime.heap.add(out, type == "dict_items"  ? runtime.heap.pair(key, value)
                          : type == "dict_keys" ? key
                                                : value);
  }
  return Value::of(Kind::view, &out);
}

Value items(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("items", {});
  return dict_view(runtime, self, "dict_items");
}

Value keys(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("keys", {});
  return dict_view(runtime, self, "dict_keys");
}

Value values(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("values", {});
  return dict_view(runtime, self, "dict_values");
}

Value get(Runtime&, const Value& self, Arguments& arguments) {
  arguments.bind("get", {"key", "default"}, 1);
  if (const Value* value = self.dict->find(*arguments.find(0))) return *value;
  return arguments.find(1) == nullptr ? Value::none() : *arguments.find(1);
}

Value pop_member(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("pop", {"key", "default"}, 1);
  const Value* found = self.dict->find(*arguments.find(0));
  if (found == nullptr) {
    if (arguments.find(1) == nullptr) fail("pop(): the dict has no such key");
    return *arguments.find(1);
  }
  const Value value = *found;
  runtime.step(self.dict->members.size());
  self.dict->erase(*arguments.find(0));
  return value;
}

Value append(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("append", {"object"}, 1);
  runtime.heap.add(*self.sequence, *arguments.find(0));
  return Value::none();
}

Value pop_item(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("pop", {"index"});
  auto& list = self.sequence->items;
  const auto n = static_cast<int64_t>(list.size());
  const int64_t index = arguments.integer(0, -1);
  if (n == 0) fail("pop from empty list");
  if (index >= n || index < -n) fail("pop(): index {} is out of range for {} items", index, n);
  const auto at = static_cast<size_t>(index < 0 ? index + n : index);
  const Value value = list[at];
  runtime.step(1 + (list.size() - at) / 16);
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
  return value;
}

Value index_of(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("index", {"value"}, 1);
  for (size_t i = 0; i < self.sequence->items.size(); ++i) {
    runtime.step();
    if (equal(self.sequence->items[i], *arguments.find(0))) return Value::of(i);
  }
  fail("index(): the value is not in the list");
}

Value count(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("count", {"value"}, 1);
  int64_t n = 0;
  for (const Value& item : self.sequence->items) {
    runtime.step();
    n += equal(item, *arguments.find(0));
  }
  return Value::of(n);
}

Value cycle(Runtime&, const Value& self, Arguments& arguments) {
  if (arguments.positional.empty()) fail("loop.cycle() needs at least one item");
  return arguments.positional[static_cast<size_t>(self.loop->index0) % arguments.positional.size()];
}

Value changed(Runtime& runtime, const Value& self, Arguments& arguments) {
  Sequence& key = runtime.heap.sequence();
  for (const Value& value : arguments.positional) runtime.heap.add(key, value);
  const Value tuple = Value::of(Kind::tuple, &key);
  const bool differs = !equal(self.loop->changed_key, tuple);
  self.loop->changed_key = tuple;
  return Value::of(differs);
}

constexpr Entry<MethodBody> kDictMethods[] = {
    {"items", items}, {"keys", keys}, {"values", values}, {"get", get}, {"pop", pop_member}};
constexpr Entry<MethodBody> kListMethods[] = {
    {"append", append}, {"pop", pop_item}, {"index", index_of}, {"count", count}};
constexpr Entry<MethodBody> kTupleMethods[] = {{"index", index_of}, {"count", count}};
constexpr Entry<MethodBody> kLoopMethods[] = {{"cycle", cycle}, {"changed", changed}};

}  // namespace

MethodBody find_method(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::text:
      return find_text_method(name);
    case Kind::dict:
      return find_entry(kDictMethods, name);
    case Kind::list:
      return find_entry(kListMethods, name);
    case Kind::tuple:
      return find_entry(kTupleMethods, name);
    case Kind::loop:
      return find_entry(kLoopMethods, name);
    default:
      return nullptr;
  }
}

}  // namespace godwit::chat::jinja
