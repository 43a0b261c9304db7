// map, select, reject, selectattr, rejectattr. They give generators: read once, without a length, always
// true.
#include <charconv>

#include "chat/jinja/access.h"
#include "chat/jinja/attribute_path.h"
#include "chat/jinja/failure.h"
#include "chat/jinja/filters.h"
#include "chat/jinja/registry.h"

namespace godwit::chat::jinja {
namespace {

// Takes the first positional argument, which names an attribute, a test or a filter.
Value take_first(Arguments& arguments, std::string_view filter, std::string_view what) {
  if (arguments.positional.empty()) fail("{}: {} is missing", filter, what);
  const Value first = arguments.positional.front();
  arguments.positional.erase(arguments.positional.begin());
  return first;
}

std::string_view name_of(const Value& v, std::string_view filter) {
  if (!v.is_text()) fail("{}: a name must be a string, not {}", filter, type_name(v));
  return v.text.view();
}

template <bool keep, bool by_attribute>
Value filter_items(Runtime& runtime, const Value& input, Arguments& arguments) {
  constexpr std::string_view kName =
      by_attribute ? (keep ? "selectattr" : "rejectattr") : (keep ? "select" : "reject");
  const Value attribute = by_attribute ? take_first(arguments, kName, "the attribute") : Value();
  const bool has_test = !arguments.positional.empty();
  const std::string_view test = has_test ? name_of(take_first(arguments, kName, "the test"), kName) : "";
  Sequence& out = runtime.heap.sequence();
  for (const Value& item : collect(runtime, input).items) {
    runtime.step();
    const Value subject = by_attribute ? follow_path(runtime, item, attribute) : item;
    const bool holds = has_test ? apply_test(runtime, test, subject, arguments) : is_true(subject);
    if (holds == keep) runtime.heap.add(out, item);
  }
  return Value::of(Kind::iterator, &out);
}

Value map(Runtime& runtime, const Value& input, Arguments& arguments) {
  Sequence& out = runtime.heap.sequence();
  const bool by_attribute = arguments.positional.empty();
  Value name;
  if (by_attribute) {
    arguments.bind("map", {"attribute", "default"}, 1);
  } else {
    name = take_first(arguments, "map", "the filter");
  }
  for (const Value& item : collect(runtime, input).items) {
    runtime.step();
    if (by_attribute) {
      const Value value = follow_path(runtime, item, *arguments.find(0));
      const bool missing = value.is_undefined() && arguments.find(1) != nullptr;
      runtime.heap.add(out, missing ? *arguments.find(1) : value);
    } else {
      runtime.heap.add(out, apply_filter(runtime, name_of(name, "map"), item, arguments));
    }
  }
  return Value::of(Kind::iterator, &out);
}

constexpr Entry<FilterBody> kFilters[] = {
    {"selectattr", filter_items<true, true>},
    {"rejectattr", filter_items<false, true>},
    {"select", filter_items<true, false>},
    {"reject", filter_items<false, false>},
    {"map", map},
};

}  // namespace

Value follow_path(Runtime& runtime, const Value& v, const Value& path) {
  if (!path.is_text()) return get_item(runtime, v, path);
  std::string_view rest = path.text.view();
  Value at = v;
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index =
        !part.empty() && part[0] != '-' && error == std::errc() && end == part.data() + part.size();
    at = get_item(runtime, at, is_index ? Value::of(index) : Value::of(data_text(part)));
    if (dot == std::string_view::npos) return at;
    rest.remove_prefix(dot + 1);
  }
}

FilterBody find_selection_filter(std::string_view name) {
  return find_entry(kFilters, name);
}

}  // namespace godwit::chat::jinja
