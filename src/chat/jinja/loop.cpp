#include "chat/jinja/loop.h"

#include "chat/jinja/access.h"
#include "chat/jinja/failure.h"

namespace godwit::chat::jinja {

size_t loop_length(Loop& loop) {
  while (loop.fetch()) {
  }
  return static_cast<size_t>(loop.index0 + 1) + loop.ahead.size();
}

Value loop_attribute(Runtime& runtime, Loop& loop, std::string_view name) {
  const auto has_next = [&] { return !loop.ahead.empty() || loop.fetch(); };
  const auto length = [&] { return static_cast<int64_t>(loop_length(loop)); };
  if (name == "index0") return Value::of(loop.index0);
  if (name == "index") return Value::of(loop.index0 + 1);
  if (name == "first") return Value::of(loop.index0 == 0);
  if (name == "last") return Value::of(!has_next());
  if (name == "previtem")
    return loop.index0 > 0 ? loop.previous : Value::undefined("there is no previous item");
  if (name == "nextitem") return has_next() ? loop.ahead.front() : Value::undefined("there is no next item");
  if (name == "length") return Value::of(length());
  if (name == "revindex") return Value::of(length() - loop.index0);
  if (name == "revindex0") return Value::of(length() - loop.index0 - 1);
  if (name == "depth") return Value::of(loop.depth0 + 1);
  if (name == "depth0") return Value::of(loop.depth0);
  const MethodBody body = find_method(Kind::loop, name);
  if (body == nullptr) return Value::undefined(name, Kind::loop);
  Method& method = runtime.heap.method();
  method.self.kind = Kind::loop;
  method.self.loop = &loop;
  method.name = name;
  method.body = body;
  Value v;
  v.kind = Kind::method;
  v.method = &method;
  return v;
}

}  // namespace godwit::chat::jinja
