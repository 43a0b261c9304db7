#include "chat/jinja/runtime.h"

#include "chat/jinja/failure.h"

namespace godwit::chat::jinja {

void Runtime::step(size_t count) {
  steps_ += count;
  if (steps_ > limits.steps) fail("the template takes more than {} steps", limits.steps);
}

Depth::Depth(Runtime& runtime) : runtime_(runtime) {
  if (runtime.depth >= runtime.limits.depth)
    fail("evaluation nested deeper than {} levels", runtime.limits.depth);
  ++runtime.depth;
}

void Arguments::bind(std::string_view callee, std::initializer_list<std::string_view> names,
                     size_t required) {
  callee_ = callee;
  names_ = names;
  if (positional.size() > names_.size()) {
    fail("{}() takes at most {} arguments, got {}", callee, names_.size(), positional.size());
  }
  slots_.assign(names_.size(), nullptr);
  for (size_t i = 0; i < positional.size(); ++i) slots_[i] = &positional[i];
  for (const auto& [name, value] : keywords) {
    size_t i = 0;
    while (i < names_.size() && names_[i] != name) ++i;
    if (i == names_.size()) fail("{}() has no argument '{}'", callee, name);
    if (slots_[i] != nullptr) fail("{}() got argument '{}' twice", callee, name);
    slots_[i] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (slots_[i] == nullptr) fail("{}() misses argument '{}'", callee, names_[i]);
  }
}

bool Arguments::flag(size_t i, bool fallback) const {
  return slots_[i] == nullptr ? fallback : is_true(*slots_[i]);
}

int64_t Arguments::integer(size_t i, int64_t fallback) const {
  if (slots_[i] == nullptr) return fallback;
  if (!slots_[i]->is_integral()) {
    fail("{}(): argument '{}' must be an integer, not {}", callee_, names_[i], type_name(*slots_[i]));
  }
  return slots_[i]->as_integer();
}

Text Arguments::text(size_t i) const {
  if (slots_[i] == nullptr) fail("{}() misses argument '{}'", callee_, names_[i]);
  if (!slots_[i]->is_text()) {
    fail("{}(): argument '{}' must be a string, not {}", callee_, names_[i], type_name(*slots_[i]));
  }
  return slots_[i]->text;
}

}  // namespace godwit::chat::jinja
