#include "chat/jinja/text.h"

namespace godwit::chat::jinja {

void Buffer::append(std::string_view text, bool from_template) {
  if (text.empty()) return;
  if (bytes.empty()) {
    starts_in_template = from_template;
  } else if (from_template != (starts_in_template != ((changes.size() & 1) != 0))) {
    changes.push_back(bytes.size());
  }
  bytes.append(text);
}

void Buffer::append(const Text& text) {
  for_each_run(text, [this](std::string_view run, bool from_template) { append(run, from_template); });
}

bool Buffer::origin_at(size_t offset) const {
  const auto next = std::upper_bound(changes.begin(), changes.end(), offset);
  return starts_in_template != (((next - changes.begin()) & 1) != 0);
}

Text Buffer::slice(size_t begin, size_t end) {
  const auto next = std::upper_bound(changes.begin(), changes.end(), begin);
  const bool mixed = next != changes.end() && *next < end;
  const Origin origin = mixed ? Origin::mixed : origin_at(begin) ? Origin::source : Origin::data;
  return {bytes.data() + begin, end - begin, this, origin};
}

Text slice(const Text& text, size_t begin, size_t end) {
  if (text.origin == Origin::mixed) {
    const size_t base = static_cast<size_t>(text.data - text.home->bytes.data());
    return text.home->slice(base + begin, base + end);
  }
  return {text.data + begin, end - begin, text.home, text.origin};
}

}  // namespace godwit::chat::jinja
