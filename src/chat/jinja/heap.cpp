#include "chat/jinja/heap.h"

#include <algorithm>

#include "chat/jinja/failure.h"

namespace godwit::chat::jinja {
namespace {

constexpr size_t kObject = 128;  // an empty list, dict, scope or buffer with its allocator overhead, about

}  // namespace

Value* Scope::find_here(Symbol name) {
  for (auto& [symbol, value] : names) {
    if (symbol == name) return &value;
  }
  return nullptr;
}

Value* Scope::find(Symbol name) {
  for (Scope* scope = this; scope != nullptr; scope = scope->parent) {
    if (Value* value = scope->find_here(name)) return value;
  }
  return nullptr;
}

void Scope::set(Symbol name, const Value& value) {
  if (Value* old = find_here(name)) {
    *old = value;
  } else {
    names.emplace_back(name, value);
  }
}

void Heap::charge(size_t bytes) {
  if (bytes > limit_ - used_) fail("the template needs more than {} bytes of memory", limit_);
  used_ += bytes;
}

Buffer& Heap::buffer(size_t reserve) {
  charge(kObject + reserve);
  Buffer& buffer = buffers_.emplace_back();
  buffer.bytes.reserve(reserve);
  return buffer;
}

Sequence& Heap::sequence(size_t reserve) {
  charge(kObject);
  Sequence& list = sequences_.emplace_back();
  list.items.reserve(reserve);
  return list;
}

Dict& Heap::dict() {
  charge(kObject);
  return dicts_.emplace_back();
}

Scope& Heap::scope(Scope* parent) {
  charge(kObject);
  Scope& scope = scopes_.emplace_back();
  scope.parent = parent;
  return scope;
}

Macro& Heap::macro() {
  charge(kObject);
  return macros_.emplace_back();
}

Loop& Heap::loop() {
  charge(4 * kObject);
  return loops_.emplace_back();
}

Method& Heap::method() {
  charge(kObject);
  return methods_.emplace_back();
}

void Heap::append(Buffer& out, const Text& text) {
  charge(text.size);
  out.append(text);
}

void Heap::append(Buffer& out, std::string_view text, bool from_template) {
  charge(text.size());
  out.append(text, from_template);
}

void Heap::add(Sequence& list, const Value& item) {
  charge(2 * sizeof(Value));
  list.items.push_back(item);
}

void Heap::set(Dict& dict, const Value& key, const Value& value) {
  charge(4 * sizeof(Value));
  dict.set(key, value);
}

Text Heap::concat(const Text& a, const Text& b) {
  if (b.size == 0) return a;
  if (a.size == 0) return b;
  Buffer* home = a.home;
  const bool is_tail = home != nullptr && a.data + a.size == home->bytes.data() + home->bytes.size();
  const size_t total = a.size + b.size;
  if (is_tail && home->bytes.capacity() - home->bytes.size() >= b.size) {
    const size_t begin = static_cast<size_t>(a.data - home->bytes.data());
    append(*home, b);
    return home->slice(begin, begin + total);
  }
  // Text that grows at its end once will grow again: give it room to double.
  Buffer& fresh = buffer(is_tail ? 2 * total : total);
  fresh.append(a);
  fresh.append(b);
  return fresh.whole();
}

Text Heap::own(std::string bytes, bool from_template) {
  charge(kObject + bytes.size());
  Buffer& buffer = buffers_.emplace_back();
  buffer.bytes = std::move(bytes);
  buffer.starts_in_template = from_template;
  return buffer.whole();
}

const Json& Heap::keep(Json document) {
  charge(kObject);
  return documents_.emplace_back(std::move(document));
}

Value Heap::pair(const Value& first, const Value& second) {
  Sequence& tuple = sequence(2);
  add(tuple, first);
  add(tuple, second);
  return Value::of(Kind::tuple, &tuple);
}

}  // namespace godwit::chat::jinja
