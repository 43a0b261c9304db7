#include <charconv>
#include <cmath>
#include <cstdlib>

#include "chat/jinja/failure.h"
#include "chat/jinja/filters.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/registry.h"
#include "chat/jinja/text_operations.h"

namespace godwit::chat::jinja {
namespace {

constexpr double kIntegerRange = 9.2e18;

// float(text); false when Python raises.
bool parse_real(Runtime& runtime, const Text& text, double& out) {
  const std::string trimmed(strip(runtime, text, Side::both, nullptr).view());
  if (trimmed.empty() || trimmed.find_first_of("xXpP") != std::string::npos) return false;
  char* end = nullptr;
  out = std::strtod(trimmed.c_str(), &end);
  return end == trimmed.c_str() + trimmed.size();
}

bool parse_integer(Runtime& runtime, const Text& text, int base, int64_t& out) {
  std::string_view digits = strip(runtime, text, Side::both, nullptr).view();
  if (!digits.empty() && digits[0] == '+') digits.remove_prefix(1);
  if (base == 16 && (digits.starts_with("0x") || digits.starts_with("0X"))) digits.remove_prefix(2);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out, base);
  return error == std::errc() && end == digits.data() + digits.size();
}

Value to_integer(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.bind("int", {"default", "base"});
  const int64_t base = arguments.integer(1, 10);
  if (base < 2 || base > 36) fail("int: base {} is not between 2 and 36", base);
  const Value fallback = arguments.find(0) == nullptr ? Value::of(int64_t{0}) : *arguments.find(0);
  if (input.is_undefined()) fail_undefined(input);
  if (input.is_integral()) return Value::of(input.as_integer());
  if (input.kind == Kind::big_integer) return input;
  double real = 0;
  if (input.is_text()) {
    int64_t value = 0;
    if (parse_integer(runtime, input.text, static_cast<int>(base), value)) return Value::of(value);
    if (!parse_real(runtime, input.text, real)) return fallback;
  } else if (input.kind == Kind::real) {
    real = input.real;
  } else {
    return fallback;
  }
  if (!std::isfinite(real)) return fallback;
  if (std::fabs(real) > kIntegerRange) fail("int: {} does not fit a 64-bit integer", real);
  return Value::of(static_cast<int64_t>(real));
}

Value to_real(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.bind("float", {"default"});
  if (input.is_undefined()) fail_undefined(input);
  if (input.is_number()) return Value::of(input.as_real());
  double real = 0;
  if (input.is_text() && parse_real(runtime, input.text, real)) return Value::of(real);
  return arguments.find(0) == nullptr ? Value::of(0.0) : *arguments.find(0);
}

Value absolute(Runtime&, const Value& input, Arguments& arguments) {
  arguments.bind("abs", {});
  if (input.is_undefined()) fail_undefined(input);
  if (input.kind == Kind::real) return Value::of(std::fabs(input.real));
  if (!input.is_integral()) fail("bad operand type for abs: '{}'", type_name(input));
  return input.as_integer() < 0 ? apply_sign(Operator::negate, input) : Value::of(input.as_integer());
}

Value round_number(Runtime&, const Value& input, Arguments& arguments) {
  arguments.bind("round", {"precision", "method"});
  const int64_t precision = arguments.integer(0, 0);
  if (precision < 0 || precision > 100) fail("round: precision {} is not between 0 and 100", precision);
  const std::string_view method = arguments.find(1) == nullptr ? "common" : arguments.text(1).view();
  if (input.is_undefined()) fail_undefined(input);
  if (!input.is_number()) fail("round: a number is required, not {}", type_name(input));
  if (method == "common") {
    if (input.kind != Kind::real) return input.kind == Kind::boolean ? Value::of(input.as_integer()) : input;
    // Decimal rounding of the exact binary value, half to even, as Python's round().
    return Value::of(std::strtod(fmt::format("{:.{}f}", input.real, precision).c_str(), nullptr));
  }
  if (method != "ceil" && method != "floor")
    fail("round: method must be common, ceil or floor, not '{}'", method);
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.as_real() * scale;
  return Value::of((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

constexpr Entry<FilterBody> kFilters[] = {
    {"int", to_integer}, {"float", to_real}, {"abs", absolute}, {"round", round_number}};

}  // namespace

FilterBody find_number_filter(std::string_view name) {
  return find_entry(kFilters, name);
}

}  // namespace godwit::chat::jinja
