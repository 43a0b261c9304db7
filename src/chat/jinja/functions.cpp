#include "chat/jinja/functions.h"

#include <array>
#include <ctime>

#include "chat/jinja/access.h"
#include "chat/jinja/failure.h"
#include "chat/jinja/print.h"

namespace godwit::chat::jinja {
namespace {

Value range(Runtime& runtime, Arguments& arguments) {
  arguments.bind("range", {"start", "stop", "step"}, 1);
  Sequence& out = runtime.heap.sequence();
  const bool has_stop = arguments.find(1) != nullptr;
  out.start = has_stop ? arguments.integer(0, 0) : 0;
  out.stop = arguments.integer(has_stop ? 1 : 0, 0);
  out.step = arguments.integer(2, 1);
  if (out.step == 0) fail("range(): step must not be zero");
  const bool forward = out.step > 0;
  if (forward ? out.start >= out.stop : out.start <= out.stop) return Value::of(Kind::range, &out);
  // Unsigned, so that no distance overflows.
  const uint64_t distance = forward ? static_cast<uint64_t>(out.stop) - static_cast<uint64_t>(out.start)
                                    : static_cast<uint64_t>(out.start) - static_cast<uint64_t>(out.stop);
  const uint64_t stride = forward ? static_cast<uint64_t>(out.step) : ~static_cast<uint64_t>(out.step) + 1;
  const uint64_t count = (distance - 1) / stride + 1;
  if (count > runtime.limits.range_items) {
    fail("range() of {} items, the limit is {}", count, runtime.limits.range_items);
  }
  int64_t value = out.start;
  for (uint64_t i = 0; i < count; ++i) {
    runtime.step();
    runtime.heap.add(out, Value::of(value));
    if (i + 1 < count) value += out.step;
  }
  return Value::of(Kind::range, &out);
}

// dict(mapping or pairs, **members), also the arguments of namespace().
Dict& make_dict(Runtime& runtime, Arguments& arguments, std::string_view callee) {
  Dict& out = runtime.heap.dict();
  if (arguments.positional.size() > 1) fail("{}() takes at most 1 positional argument", callee);
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is_dict()) {
      for (const auto& [key, value] : source.dict->members) runtime.heap.set(out, key, value);
    } else {
      for (const Value& item : collect(runtime, source).items) {
        const Sequence& pair = collect(runtime, item);
        if (pair.items.size() != 2)
          fail("{}(): an element has {} items, 2 are required", callee, pair.items.size());
        runtime.heap.set(out, pair.items[0], pair.items[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.keywords)
    runtime.heap.set(out, Value::of(source_text(name)), value);
  return out;
}

Value dict(Runtime& runtime, Arguments& arguments) {
  return Value::of(&make_dict(runtime, arguments, "dict"));
}

Value name_space(Runtime& runtime, Arguments& arguments) {
  return Value::of(&make_dict(runtime, arguments, "namespace"), Kind::name_space);
}

Value raise_exception(Runtime& runtime, Arguments& arguments) {
  arguments.bind("raise_exception", {"message"}, 1);
  fail("{}", to_text(runtime, *arguments.find(0)).view());
}

Value strftime_now(Runtime& runtime, Arguments& arguments) {
  arguments.bind("strftime_now", {"format"}, 1);
  const std::string format(arguments.text(0).view());
  const std::time_t now = runtime.now ? *runtime.now : std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 512> buffer;
  // strftime returns 0 both for "does not fit" and for an empty result.
  const size_t size = std::strftime(buffer.data(), buffer.size(), format.c_str(), &local);
  if (size == 0 && format.size() > 64)
    fail("strftime_now(): the result is longer than {} bytes", buffer.size() - 1);
  return Value::of(runtime.heap.own(std::string(buffer.data(), size)));
}

constexpr Function kFunctions[] = {{"range", range},
                                   {"namespace", name_space},
                                   {"dict", dict},
                                   {"raise_exception", raise_exception},
                                   {"strftime_now", strftime_now}};

}  // namespace

Value global_function(std::string_view name) {
  Value v = Value::undefined(name);
  for (const Function& function : kFunctions) {
    if (function.name != name) continue;
    v.kind = Kind::function;
    v.function = &function;
  }
  return v;
}

}  // namespace godwit::chat::jinja
