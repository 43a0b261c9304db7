#include "chat/jinja/print.h"

#include "base/json.h"
#include "chat/jinja/failure.h"
#include "chat/jinja/unicode.h"

namespace godwit::chat::jinja {
namespace {

void append_quoted(std::string& out, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      append_code_point(out, c);
    } else {
      out += c < 0x100     ? fmt::format("\\x{:02x}", static_cast<uint32_t>(c))
             : c < 0x10000 ? fmt::format("\\u{:04x}", static_cast<uint32_t>(c))
                           : fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
  }
  out += quote;
}

void append_items(Runtime& runtime, std::string& out, const Sequence& sequence) {
  for (size_t i = 0; i < sequence.items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(runtime, out, sequence.items[i]);
  }
}

void append_dict(Runtime& runtime, std::string& out, const Dict& dict) {
  out += '{';
  for (size_t i = 0; i < dict.members.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(runtime, out, dict.members[i].first);
    out += ": ";
    append_repr(runtime, out, dict.members[i].second);
  }
  out += '}';
}

}  // namespace

Text to_text(Runtime& runtime, const Value& v) {
  if (v.is_text()) return v.text;
  if (v.is_undefined()) return data_text({});
  std::string out;
  append_str(runtime, out, v);
  return runtime.heap.own(std::move(out));
}

void append_str(Runtime& runtime, std::string& out, const Value& v) {
  if (v.is_text()) {
    out += v.text.view();
  } else if (!v.is_undefined()) {
    append_repr(runtime, out, v);
  }
}

void append_repr(Runtime& runtime, std::string& out, const Value& v) {
  const Depth depth(runtime);  // a list may hold itself
  runtime.step();
  // What grows here is not in the heap yet: hold it against the same bound as any text.
  if (out.size() > runtime.limits.output_bytes)
    fail("printed value is longer than {} bytes", runtime.limits.output_bytes);
  switch (v.kind) {
    case Kind::undefined:
      out += "Undefined";
      return;
    case Kind::none:
      out += "None";
      return;
    case Kind::boolean:
      out += v.boolean ? "True" : "False";
      return;
    case Kind::integer:
      out += fmt::format("{}", v.integer);
      return;
    case Kind::big_integer:
      out += v.text.view();
      return;
    case Kind::real:
      out += python_float(v.real);
      return;
    case Kind::text:
      append_quoted(out, v.text.view());
      return;
    case Kind::list:
      out += '[';
      append_items(runtime, out, *v.sequence);
      out += ']';
      return;
    case Kind::tuple:
      out += '(';
      append_items(runtime, out, *v.sequence);
      out += v.sequence->items.size() == 1 ? ",)" : ")";
      return;
    case Kind::range:
      out += v.sequence->step == 1
                 ? fmt::format("range({}, {})", v.sequence->start, v.sequence->stop)
                 : fmt::format("range({}, {}, {})", v.sequence->start, v.sequence->stop, v.sequence->step);
      return;
    case Kind::view:
      out += v.sequence->type;
      out += "([";
      append_items(runtime, out, *v.sequence);
      out += "])";
      return;
    case Kind::dict:
      append_dict(runtime, out, *v.dict);
      return;
    case Kind::name_space:
      out += "<Namespace ";
      append_dict(runtime, out, *v.dict);
      out += '>';
      return;
    case Kind::macro:
      out += fmt::format("<Macro '{}'>", v.macro->name);
      return;
    case Kind::loop:
      // The length is not known without running the loop's filter; only the position is.
      out += fmt::format("<LoopContext {}>", v.loop->index0 + 1);
      return;
    default:
      out += fmt::format("<{}>", type_name(v));
      return;
  }
}

}  // namespace godwit::chat::jinja
