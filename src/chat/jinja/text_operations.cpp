#include "chat/jinja/text_operations.h"

#include <algorithm>

#include "chat/jinja/failure.h"
#include "chat/jinja/print.h"
#include "chat/jinja/unicode.h"

namespace godwit::chat::jinja {
namespace {

bool in_set(char32_t c, const Text* characters) {
  if (characters == nullptr) return is_space(c);
  for (size_t at = 0; at < characters->size;) {
    if (next_code_point(characters->view(), at) == c) return true;
  }
  return false;
}

size_t previous_start(std::string_view bytes, size_t end) {
  size_t start = end - 1;
  while (start > 0 && (static_cast<unsigned char>(bytes[start]) & 0xC0) == 0x80) --start;
  return start;
}

bool begins_title_word(char32_t previous) {
  return is_space(previous) || previous == '-' || previous == '(' || previous == '{' || previous == '[' ||
         previous == '<';
}

void add_slice(Runtime& runtime, Sequence& out, const Text& text, size_t begin, size_t end) {
  runtime.heap.add(out, Value::of(slice(text, begin, end)));
}

void split_white_space(Runtime& runtime, const Text& text, int64_t limit, Sequence& out) {
  const std::string_view bytes = text.view();
  size_t at = 0;
  while (at < bytes.size()) {
    size_t next = at;
    if (is_space(next_code_point(bytes, next))) {
      at = next;
      continue;
    }
    if (limit >= 0 && static_cast<int64_t>(out.items.size()) == limit) {
      add_slice(runtime, out, text, at, bytes.size());  // Python keeps the white space at its end
      return;
    }
    const size_t begin = at;
    while (at < bytes.size()) {
      next = at;
      if (is_space(next_code_point(bytes, next))) break;
      at = next;
    }
    add_slice(runtime, out, text, begin, at);
  }
}

void split_white_space_from_right(Runtime& runtime, const Text& text, int64_t limit, Sequence& out) {
  const std::string_view bytes = text.view();
  const auto space_before = [&](size_t end) {
    size_t start = previous_start(bytes, end);
    return is_space(next_code_point(bytes, start));
  };
  size_t end = bytes.size();
  while (true) {
    while (end > 0 && space_before(end)) end = previous_start(bytes, end);
    if (end == 0) break;
    if (limit >= 0 && static_cast<int64_t>(out.items.size()) == limit) {
      add_slice(runtime, out, text, 0, end);
      break;
    }
    size_t begin = end;
    while (begin > 0 && !space_before(begin)) begin = previous_start(bytes, begin);
    add_slice(runtime, out, text, begin, end);
    end = begin;
  }
  std::reverse(out.items.begin(), out.items.end());
}

}  // namespace

Text strip(Runtime& runtime, const Text& text, Side side, const Text* characters) {
  if (characters != nullptr) runtime.scan(characters->size * 64);
  const std::string_view bytes = text.view();
  size_t begin = 0, end = bytes.size();
  while (side != Side::right && begin < end) {
    size_t next = begin;
    if (!in_set(next_code_point(bytes, next), characters)) break;
    begin = next;
  }
  while (side != Side::left && end > begin) {
    size_t start = previous_start(bytes, end);
    const size_t last = start;
    if (!in_set(next_code_point(bytes, start), characters)) break;
    end = last;
  }
  // A long set makes each character dear.
  runtime.step((text.size - (end - begin)) * (characters == nullptr ? 1 : 1 + characters->size / 16) / 16);
  return slice(text, begin, end);
}

Text change_case(Runtime& runtime, const Text& text, Case to) {
  runtime.scan(4 * text.size);
  std::string out;
  out.reserve(text.size);
  const std::string_view bytes = text.view();
  bool starts_word = true;
  for (size_t at = 0; at < bytes.size();) {
    const char32_t c = next_code_point(bytes, at);
    if (to == Case::upper) {
      append_upper(out, c);
    } else if (to == Case::lower || !starts_word) {
      append_lower(out, c);
    } else if (to == Case::title_filter) {
      append_upper(out, c);
    } else {
      append_title(out, c);
    }
    starts_word =
        (to == Case::title_words && !is_letter(c)) || (to == Case::title_filter && begins_title_word(c));
  }
  return runtime.heap.own(std::move(out), text.origin == Origin::source);
}

Text replace(Runtime& runtime, const Text& text, const Text& from, const Text& to, int64_t count) {
  const std::string_view bytes = text.view();
  Buffer& out = runtime.heap.buffer();
  size_t at = 0;
  const auto room = [&] {
    runtime.step();
    if (out.bytes.size() > runtime.limits.output_bytes)
      fail("replace() makes more than {} bytes", runtime.limits.output_bytes);
    return count < 0 || count-- > 0;
  };
  runtime.scan(bytes.size());
  if (from.size == 0) {  // between all characters, and at both ends
    while (room()) {
      runtime.heap.append(out, to);
      if (at >= bytes.size()) break;
      const size_t begin = at;
      next_code_point(bytes, at);
      runtime.heap.append(out, slice(text, begin, at));
    }
  } else {
    for (size_t hit = bytes.find(from.view()); hit != std::string_view::npos && room();
         hit = bytes.find(from.view(), at)) {
      runtime.heap.append(out, slice(text, at, hit));
      runtime.heap.append(out, to);
      at = hit + from.size;
    }
  }
  runtime.heap.append(out, slice(text, at, bytes.size()));
  return out.whole();
}

Sequence& split(Runtime& runtime, const Text& text, const Text* separator, int64_t limit, bool from_right) {
  runtime.scan(text.size);
  Sequence& out = runtime.heap.sequence();
  if (separator == nullptr) {
    if (from_right) {
      split_white_space_from_right(runtime, text, limit, out);
    } else {
      split_white_space(runtime, text, limit, out);
    }
    return out;
  }
  const std::string_view bytes = text.view(), mark = separator->view();
  if (mark.empty()) fail("empty separator");
  const auto more = [&] { return limit < 0 || static_cast<int64_t>(out.items.size()) < limit; };
  if (from_right) {
    size_t end = bytes.size();
    while (more() && end >= mark.size()) {
      const size_t hit = bytes.rfind(mark, end - mark.size());
      if (hit == std::string_view::npos) break;
      add_slice(runtime, out, text, hit + mark.size(), end);
      end = hit;
    }
    add_slice(runtime, out, text, 0, end);
    std::reverse(out.items.begin(), out.items.end());
    return out;
  }
  size_t at = 0;
  while (more()) {
    const size_t hit = bytes.find(mark, at);
    if (hit == std::string_view::npos) break;
    add_slice(runtime, out, text, at, hit);
    at = hit + mark.size();
  }
  add_slice(runtime, out, text, at, bytes.size());
  return out;
}

Sequence& split_lines(Runtime& runtime, const Text& text, bool keep_ends) {
  runtime.scan(text.size);
  Sequence& out = runtime.heap.sequence();
  const std::string_view bytes = text.view();
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = at;
    const char32_t c = next_code_point(bytes, at);
    const bool breaks =
        (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!breaks) continue;
    if (c == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    add_slice(runtime, out, text, begin, keep_ends ? at : end);
    begin = at;
  }
  if (begin < bytes.size()) add_slice(runtime, out, text, begin, bytes.size());
  return out;
}

Text join(Runtime& runtime, const Text& separator, const Sequence& items, bool strict) {
  Buffer& out = runtime.heap.buffer();
  for (size_t i = 0; i < items.items.size(); ++i) {
    const Value& item = items.items[i];
    runtime.step();
    if (strict && !item.is_text()) fail("join(): item {} must be a string, not {}", i, type_name(item));
    if (i > 0) runtime.heap.append(out, separator);
    runtime.heap.append(out, to_text(runtime, item));
  }
  return out.whole();
}

}  // namespace godwit::chat::jinja
