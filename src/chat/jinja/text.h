// Text of the evaluator: bytes that remember where they came from. Template literals are "template",
// everything that came in with the request is "data" (api spec §2.9), so the tokenizer can keep control
// tokens in messages literal.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace godwit::chat::jinja {

enum class Origin : uint8_t { data, source, mixed };

struct Buffer;

// A view. `data` points into a Buffer, the context's Json or the syntax tree, all of which outlive the
// render.
struct Text {
  const char* data;
  size_t size;
  Buffer* home;  // the Buffer that owns the bytes; null for context and literals
  Origin origin;

  std::string_view view() const { return {data, size}; }
};

// Owned bytes and the offsets at which their origin changes from template to data or back, ascending.
struct Buffer {
  std::string bytes;
  std::vector<size_t> changes;
  bool starts_in_template = false;

  void append(std::string_view text, bool from_template);
  void append(const Text& text);
  Text whole() { return slice(0, bytes.size()); }
  Text slice(size_t begin, size_t end);
  bool origin_at(size_t offset) const;  // true: template
};

inline Text data_text(std::string_view text) {
  return {text.data(), text.size(), nullptr, Origin::data};
}
inline Text source_text(std::string_view text) {
  return {text.data(), text.size(), nullptr, Origin::source};
}
// The bytes [begin, end) of a text.
Text slice(const Text& text, size_t begin, size_t end);

// Calls fn(bytes, from_template) for each run of one origin.
template <class Fn>
void for_each_run(const Text& text, Fn&& fn) {
  if (text.origin != Origin::mixed) {
    if (text.size > 0) fn(text.view(), text.origin == Origin::source);
    return;
  }
  // Indices, not iterators: fn may append to the very buffer being read (x + x).
  const Buffer& home = *text.home;
  size_t at = static_cast<size_t>(text.data - home.bytes.data());
  const size_t end = at + text.size;
  size_t next = static_cast<size_t>(std::upper_bound(home.changes.begin(), home.changes.end(), at) -
                                    home.changes.begin());
  while (at < end) {
    const bool from_template = home.starts_in_template != ((next & 1) != 0);
    const size_t stop = next < home.changes.size() ? std::min(home.changes[next], end) : end;
    fn(std::string_view(home.bytes.data() + at, stop - at), from_template);
    at = stop;
    ++next;
  }
}

}  // namespace godwit::chat::jinja
