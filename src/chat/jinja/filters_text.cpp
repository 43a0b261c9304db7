// Filters on text, and those between text and values: default, string, tojson, from_json.
#include "base/json.h"
#include "chat/jinja/failure.h"
#include "chat/jinja/filters.h"
#include "chat/jinja/json_bridge.h"
#include "chat/jinja/percent_format.h"
#include "chat/jinja/print.h"
#include "chat/jinja/registry.h"
#include "chat/jinja/text_operations.h"

namespace godwit::chat::jinja {
namespace {

constexpr int64_t kMaxIndent = 1024;

template <Case to>
Value change(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.bind("case filter", {});
  return Value::of(change_case(runtime, to_text(runtime, input), to));
}

Value trim(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.bind("trim", {"chars"});
  const Text text = to_text(runtime, input);
  if (arguments.find(0) == nullptr || arguments.find(0)->is_none()) {
    return Value::of(strip(runtime, text, Side::both, nullptr));
  }
  const Text characters = arguments.text(0);
  return Value::of(strip(runtime, text, Side::both, &characters));
}

Value string(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.bind("string", {});
  return Value::of(to_text(runtime, input));
}

// Autoescape is off, so marking as safe changes nothing.
Value safe(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.bind("safe", {});
  return Value::of(to_text(runtime, input));
}

Value replace_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.bind("replace", {"old", "new", "count"}, 2);
  const Value* count = arguments.find(2);
  const int64_t limit = count == nullptr || count->is_none() ? -1 : arguments.integer(2, -1);
  return Value::of(replace(runtime, to_text(runtime, input), to_text(runtime, *arguments.find(0)),
                           to_text(runtime, *arguments.find(1)), limit));
}

Value indent(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.bind("indent", {"width", "first", "blank"});
  const bool first = arguments.flag(1, false), blank = arguments.flag(2, false);
  std::string spaces;
  Text indentation;
  if (arguments.find(0) != nullptr && arguments.find(0)->is_text()) {
    indentation = arguments.text(0);
  } else {
    const int64_t width = arguments.integer(0, 4);
    if (width > kMaxIndent) fail("indent(): width {} exceeds {}", width, kMaxIndent);
    indentation = runtime.heap.own(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '), true);
  }
  // Jinja appends a newline before splitting, so that a final newline is kept.
  const Text text = runtime.heap.concat(to_text(runtime, input), source_text("\n"));
  const Sequence& lines = split_lines(runtime, text, false);
  Buffer& out = runtime.heap.buffer();
  for (size_t i = 0; i < lines.items.size(); ++i) {
    runtime.step();
    const Text& line = lines.items[i].text;
    if (i > 0) runtime.heap.append(out, source_text("\n"));
    if (i == 0 ? first : blank || line.size > 0) runtime.heap.append(out, indentation);
    runtime.heap.append(out, line);
  }
  return Value::of(out.whole());
}

Value format(Runtime& runtime, const Value& input, Arguments& arguments) {
  if (!arguments.keywords.empty()) fail("format: keyword arguments are not supported");
  Sequence& tuple = runtime.heap.sequence();
  for (const Value& value : arguments.positional) runtime.heap.add(tuple, value);
  return Value::of(percent_format(runtime, to_text(runtime, input), Value::of(Kind::tuple, &tuple)));
}

Value default_value(Runtime&, const Value& input, Arguments& arguments) {
  arguments.bind("default", {"default_value", "boolean"});
  const bool replaces = input.is_undefined() || (arguments.flag(1, false) && !is_true(input));
  if (!replaces) return input;
  return arguments.find(0) == nullptr ? Value::of(source_text("")) : *arguments.find(0);
}

// transformers' tojson is json.dumps, not Jinja's HTML-safe one (api spec §2.1).
Value tojson(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.bind("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = arguments.flag(0, false);
  style.sort_keys = arguments.flag(3, false);
  if (const Value* width = arguments.find(1); width != nullptr && !width->is_none()) {
    const int64_t value = arguments.integer(1, 0);
    if (value > kMaxIndent) fail("tojson: indent {} exceeds {}", value, kMaxIndent);
    style.indent = static_cast<int>(std::max<int64_t>(value, 0));
    style.item_separator = ",";
  }
  if (const Value* pair = arguments.find(2); pair != nullptr && !pair->is_none()) {
    const bool is_pair = (pair->kind == Kind::tuple || pair->kind == Kind::list) &&
                         pair->sequence->items.size() == 2 && pair->sequence->items[0].is_text() &&
                         pair->sequence->items[1].is_text();
    if (!is_pair) fail("tojson: separators must be two strings");
    style.item_separator = pair->sequence->items[0].text.view();
    style.key_separator = pair->sequence->items[1].text.view();
  }
  std::string out = dump_json(to_json(runtime, input), style);
  runtime.scan(out.size());
  return Value::of(runtime.heap.own(std::move(out)));
}

Value parse_json_text(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.bind("from_json", {});
  if (!input.is_text()) fail("from_json needs a string, not {}", type_name(input));
  runtime.scan(input.text.size);
  auto parsed = parse_json(input.text.view());
  if (!parsed.ok()) fail("from_json: {}", parsed.error().message);
  return from_json(runtime, runtime.heap.keep(std::move(parsed).value()));
}

constexpr Entry<FilterBody> kFilters[] = {
    {"tojson", tojson},
    {"trim", trim},
    {"default", default_value},
    {"d", default_value},
    {"string", string},
    {"lower", change<Case::lower>},
    {"upper", change<Case::upper>},
    {"capitalize", change<Case::capitalize>},
    {"title", change<Case::title_filter>},
    {"safe", safe},
    {"replace", replace_filter},
    {"indent", indent},
    {"format", format},
    {"from_json", parse_json_text},
};

}  // namespace

FilterBody find_text_filter(std::string_view name) {
  return find_entry(kFilters, name);
}

}  // namespace godwit::chat::jinja
