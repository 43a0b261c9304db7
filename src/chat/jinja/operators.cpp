#include "chat/jinja/operators.h"

#include <cmath>

#include "chat/jinja/access.h"
#include "chat/jinja/failure.h"
#include "chat/jinja/percent_format.h"
#include "chat/jinja/print.h"

namespace godwit::chat::jinja {
namespace {

std::string_view symbol(Operator op) {
  switch (op) {
    case Operator::add:
      return "+";
    case Operator::subtract:
      return "-";
    case Operator::multiply:
      return "*";
    case Operator::divide:
      return "/";
    case Operator::floor_divide:
      return "//";
    case Operator::modulo:
      return "%";
    case Operator::power:
      return "**";
    default:
      return "~";
  }
}

[[noreturn]] void fail_range(Operator op, int64_t a, int64_t b) {
  fail("{} {} {} does not fit a 64-bit integer", a, symbol(op), b);
}

Value integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  int64_t square = base;
  for (int64_t e = exponent; e > 0; e >>= 1) {
    if ((e & 1) && __builtin_mul_overflow(result, square, &result))
      fail_range(Operator::power, base, exponent);
    if (e > 1 && __builtin_mul_overflow(square, square, &square)) fail_range(Operator::power, base, exponent);
  }
  return Value::of(result);
}

Value integer_arithmetic(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::add:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::subtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::multiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::power:
      return integer_power(a, b);
    default:
      if (b == -1) {  // INT64_MIN / -1 traps
        overflow = op == Operator::floor_divide && __builtin_sub_overflow(int64_t{0}, a, &result);
      } else {
        const bool adjust = a % b != 0 && (a < 0) != (b < 0);  // Python rounds towards minus infinity
        result = op == Operator::floor_divide ? a / b - adjust : a % b + (adjust ? b : 0);
      }
  }
  if (overflow) fail_range(op, a, b);
  return Value::of(result);
}

Value arithmetic(Operator op, const Value& a, const Value& b) {
  const bool divides = op == Operator::divide || op == Operator::floor_divide || op == Operator::modulo;
  if (divides && b.as_real() == 0) fail("division by zero");
  const bool integral = a.is_integral() && b.is_integral();
  if (integral && op != Operator::divide && !(op == Operator::power && b.as_integer() < 0)) {
    return integer_arithmetic(op, a.as_integer(), b.as_integer());
  }
  if (a.kind == Kind::big_integer || b.kind == Kind::big_integer) {
    fail("'{}' of an integer beyond 64 bits is not supported", symbol(op));
  }
  const double x = a.as_real(), y = b.as_real();
  switch (op) {
    case Operator::add:
      return Value::of(x + y);
    case Operator::subtract:
      return Value::of(x - y);
    case Operator::multiply:
      return Value::of(x * y);
    case Operator::divide:
      return Value::of(x / y);
    case Operator::floor_divide:
      return Value::of(std::floor(x / y));
    case Operator::modulo: {
      const double r = std::fmod(x, y);
      return Value::of(r != 0 && (r < 0) != (y < 0) ? r + y : r);
    }
    default:
      return Value::of(std::pow(x, y));
  }
}

Value repeat(Runtime& runtime, const Value& v, int64_t count) {
  const auto times = static_cast<size_t>(std::max<int64_t>(count, 0));
  const size_t size = v.is_text() ? v.text.size : v.sequence->items.size();
  const size_t unit = v.is_text() ? 1 : 2 * sizeof(Value);
  if (times != 0 && size > runtime.limits.output_bytes / unit / times) {
    fail("repeating a {} of {} {} times is longer than {} bytes", type_name(v), size, times,
         runtime.limits.output_bytes);
  }
  runtime.scan(size * times);
  if (v.is_text()) {
    Buffer& out = runtime.heap.buffer(size * times);
    for (size_t i = 0; i < times && size > 0; ++i) out.append(v.text);
    return Value::of(out.whole());
  }
  Sequence& out = runtime.heap.sequence();
  for (size_t i = 0; i < times && size > 0; ++i) {
    for (size_t k = 0; k < size; ++k) runtime.heap.add(out, v.sequence->items[k]);
  }
  return Value::of(v.kind, &out);
}

Value joined(Runtime& runtime, const Value& a, const Value& b) {
  Sequence& out = runtime.heap.sequence();
  for (const Sequence* part : {a.sequence, b.sequence}) {
    runtime.step(part->items.size());
    for (size_t i = 0; i < part->items.size(); ++i) runtime.heap.add(out, part->items[i]);
  }
  return Value::of(a.kind, &out);
}

bool repeatable(const Value& v) {
  return v.is_text() || v.kind == Kind::list || v.kind == Kind::tuple;
}

}  // namespace

Value apply_binary(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  if (op == Operator::concat) {
    const Text left = to_text(runtime, a), right = to_text(runtime, b);
    runtime.scan(right.size);
    return Value::of(runtime.heap.concat(left, right));
  }
  if (op == Operator::modulo && a.is_text()) return Value::of(percent_format(runtime, a.text, b));
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (op == Operator::add && a.is_text() && b.is_text()) {
    runtime.scan(b.text.size);
    return Value::of(runtime.heap.concat(a.text, b.text));
  }
  if (a.is_number() && b.is_number()) return arithmetic(op, a, b);
  if (op == Operator::add && a.kind == b.kind && (a.kind == Kind::list || a.kind == Kind::tuple)) {
    return joined(runtime, a, b);
  }
  if (op == Operator::multiply && repeatable(a) && b.is_integral()) return repeat(runtime, a, b.as_integer());
  if (op == Operator::multiply && repeatable(b) && a.is_integral()) return repeat(runtime, b, a.as_integer());
  fail("unsupported operand types for {}: '{}' and '{}'", symbol(op), type_name(a), type_name(b));
}

Value apply_sign(Operator op, const Value& v) {
  if (v.is_undefined()) fail_undefined(v);
  const bool negate = op == Operator::negate;
  if (v.kind == Kind::real) return Value::of(negate ? -v.real : v.real);
  if (v.is_integral())
    return negate ? integer_arithmetic(Operator::subtract, 0, v.as_integer()) : Value::of(v.as_integer());
  fail("bad operand type for unary {}: '{}'", negate ? "-" : "+", type_name(v));
}

bool compare(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  switch (op) {
    case Operator::equal:
      return equal(a, b);
    case Operator::not_equal:
      return !equal(a, b);
    case Operator::less:
      return less(a, b);
    case Operator::greater:
      return less(b, a);
    // Not "!less": a NaN is neither.
    case Operator::less_equal:
      return less(a, b) || equal(a, b);
    case Operator::greater_equal:
      return less(b, a) || equal(a, b);
    case Operator::in:
      return contains(runtime, b, a);
    default:
      return !contains(runtime, b, a);
  }
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is_text()) {
    if (!item.is_text()) fail("'in <string>' requires a string on the left, not {}", type_name(item));
    runtime.scan(container.text.size);
    return container.text.view().find(item.text.view()) != std::string_view::npos;
  }
  if (container.is_dict()) return container.dict->find(item) != nullptr;
  if (!container.is_sequence() && !container.is_undefined()) {
    fail("argument of type '{}' is not iterable", type_name(container));
  }
  Sequence& items = iterate(runtime, container);
  size_t i = container.kind == Kind::iterator ? items.next : 0;
  bool found = false;
  while (i < items.items.size() && !found) {
    runtime.step();
    found = equal(items.items[i++], item);
  }
  if (container.kind == Kind::iterator) items.next = i;
  return found;
}

}  // namespace godwit::chat::jinja
