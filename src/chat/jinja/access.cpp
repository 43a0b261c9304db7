#include "chat/jinja/access.h"

#include <algorithm>
#include <limits>

#include "chat/jinja/failure.h"
#include "chat/jinja/loop.h"
#include "chat/jinja/print.h"
#include "chat/jinja/unicode.h"

namespace godwit::chat::jinja {
namespace {

Value bound_method(Runtime& runtime, const Value& self, std::string_view name) {
  const MethodBody body = find_method(self.kind, name);
  if (body == nullptr) return Value();
  Method& method = runtime.heap.method();
  method = {self, name, body};
  Value v;
  v.kind = Kind::method;
  v.method = &method;
  return v;
}

bool is_indexed(const Value& v) {
  return v.kind == Kind::list || v.kind == Kind::tuple || v.kind == Kind::range;
}

Value character(Runtime& runtime, const Text& text, int64_t index) {
  runtime.scan(text.size);
  const std::string_view bytes = text.view();
  if (index < 0) index += static_cast<int64_t>(count_code_points(bytes));
  if (index < 0) return Value();
  const size_t begin = offset_of(bytes, static_cast<size_t>(index));
  if (begin >= bytes.size()) return Value();
  size_t end = begin;
  next_code_point(bytes, end);
  return Value::of(slice(text, begin, end));
}

// Python's slice.indices for a sequence of n items.
struct Bounds {
  int64_t start, stop, step;
};
Bounds bounds(int64_t n, const Value& start, const Value& stop, const Value& step) {
  const auto read = [](const Value& v, int64_t fallback) {
    if (v.is_none()) return fallback;
    if (v.is_undefined()) fail_undefined(v);
    if (!v.is_integral()) fail("slice indices must be integers, not {}", type_name(v));
    return v.as_integer();
  };
  Bounds b{0, 0, read(step, 1)};
  if (b.step == 0) fail("slice step cannot be zero");
  const bool forward = b.step > 0;
  const auto clip = [&](int64_t i) {
    if (i < 0) i = i < -n ? -1 : i + n;
    return std::clamp<int64_t>(i, forward ? 0 : -1, forward ? n : n - 1);
  };
  const int64_t first = forward ? 0 : n - 1;
  b.start = start.is_none() ? first : clip(read(start, 0));
  b.stop = stop.is_none() ? (forward ? n : -1) : clip(read(stop, 0));
  return b;
}

// Calls fn with each index of the slice.
template <class Fn>
void for_each_index(const Bounds& b, Fn&& fn) {
  const int64_t span = b.step > 0 ? b.stop - b.start : b.start - b.stop;
  if (span <= 0) return;
  const uint64_t stride = b.step > 0 ? static_cast<uint64_t>(b.step) : ~static_cast<uint64_t>(b.step) + 1;
  const uint64_t count = (static_cast<uint64_t>(span) - 1) / stride + 1;
  int64_t i = b.start;
  for (uint64_t k = 0; k < count; ++k) {
    fn(static_cast<size_t>(i));
    if (k + 1 < count) i += b.step;
  }
}

Value slice_text(Runtime& runtime, const Text& text, const Value& start, const Value& stop,
                 const Value& step) {
  runtime.scan(text.size);
  const std::string_view bytes = text.view();
  const Bounds b = bounds(static_cast<int64_t>(count_code_points(bytes)), start, stop, step);
  if (b.step == 1) {
    if (b.stop <= b.start) return Value::of(slice(text, 0, 0));
    const size_t begin = offset_of(bytes, static_cast<size_t>(b.start));
    const size_t length = offset_of(bytes.substr(begin), static_cast<size_t>(b.stop - b.start));
    return Value::of(slice(text, begin, begin + length));
  }
  std::vector<size_t> offsets;
  for (size_t at = 0; at < bytes.size(); next_code_point(bytes, at)) offsets.push_back(at);
  runtime.heap.charge(offsets.size() * sizeof(size_t));
  offsets.push_back(bytes.size());
  Buffer& out = runtime.heap.buffer();
  for_each_index(b, [&](size_t i) { runtime.heap.append(out, slice(text, offsets[i], offsets[i + 1])); });
  return Value::of(out.whole());
}

}  // namespace

Value get_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (object.is_undefined()) fail_undefined(object);
  if (object.kind == Kind::name_space) {
    const Value* value = object.dict->find(name);
    return value == nullptr ? Value::undefined(name, object.kind) : *value;
  }
  if (object.kind == Kind::loop) return loop_attribute(runtime, *object.loop, name);
  if (object.kind == Kind::macro && name == "name") return Value::of(source_text(object.macro->name));
  if (const Value method = bound_method(runtime, object, name); !method.is_undefined()) return method;
  if (object.is_dict()) {
    if (const Value* value = object.dict->find(name)) return *value;
  }
  return Value::undefined(name, object.kind);
}

Value get_item(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is_undefined()) fail_undefined(object);
  if (object.is_dict()) {
    if (const Value* value = object.dict->find(key)) return *value;
  } else if (key.is_integral()) {
    const int64_t index = key.as_integer();
    if (object.is_text()) {
      const Value c = character(runtime, object.text, index);
      if (!c.is_undefined()) return c;
    } else if (is_indexed(object)) {
      const auto n = static_cast<int64_t>(object.sequence->items.size());
      if (index < n && index >= -n)
        return object.sequence->items[static_cast<size_t>(index < 0 ? index + n : index)];
    }
  }
  if (key.is_text()) {
    if (object.is_dict()) {
      const Value method = bound_method(runtime, object, key.text.view());
      return method.is_undefined() ? Value::undefined(key.text.view(), Kind::dict) : method;
    }
    return get_attribute(runtime, object, key.text.view());
  }
  return Value::undefined(to_text(runtime, key).view(), object.kind);
}

Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                const Value& step) {
  if (object.is_undefined()) fail_undefined(object);
  if (object.is_text()) return slice_text(runtime, object.text, start, stop, step);
  if (!is_indexed(object)) return Value::undefined("slice", object.kind);
  Sequence& out = runtime.heap.sequence();
  for_each_index(bounds(static_cast<int64_t>(object.sequence->items.size()), start, stop, step),
                 [&](size_t i) {
                   runtime.step();
                   runtime.heap.add(out, object.sequence->items[i]);
                 });
  return Value::of(object.kind == Kind::tuple ? Kind::tuple : Kind::list, &out);
}

size_t length_of(Runtime& runtime, const Value& v) {
  switch (v.kind) {
    case Kind::undefined:
      return 0;
    case Kind::text:
      runtime.scan(v.text.size);
      return count_code_points(v.text.view());
    case Kind::list:
    case Kind::tuple:
    case Kind::range:
    case Kind::view:
      return v.sequence->items.size();
    case Kind::dict:
      return v.dict->members.size();
    case Kind::loop:
      return loop_length(*v.loop);
    default:
      fail("object of type '{}' has no length", type_name(v));
  }
}

Sequence& iterate(Runtime& runtime, const Value& v) {
  if (v.is_sequence()) return *v.sequence;
  if (v.is_undefined()) return runtime.heap.sequence();
  if (v.is_text()) {
    Sequence& out = runtime.heap.sequence();
    const std::string_view bytes = v.text.view();
    for (size_t at = 0; at < bytes.size();) {
      const size_t begin = at;
      next_code_point(bytes, at);
      runtime.step();
      runtime.heap.add(out, Value::of(slice(v.text, begin, at)));
    }
    return out;
  }
  if (v.is_dict()) {
    Sequence& out = runtime.heap.sequence();
    for (const auto& member : v.dict->members) runtime.heap.add(out, member.first);
    return out;
  }
  fail("'{}' object is not iterable", type_name(v));
}

Sequence& collect(Runtime& runtime, const Value& v) {
  Sequence& source = iterate(runtime, v);
  Sequence& out = runtime.heap.sequence();
  runtime.step(source.items.size());
  for (size_t i = v.kind == Kind::iterator ? source.next : 0; i < source.items.size(); ++i) {
    runtime.heap.add(out, source.items[i]);
  }
  if (v.kind == Kind::iterator) source.next = source.items.size();
  return out;
}

}  // namespace godwit::chat::jinja
