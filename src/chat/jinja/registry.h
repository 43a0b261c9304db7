// Tables from a name to a built-in.
#pragma once

#include <string_view>

namespace godwit::chat::jinja {

template <class Body>
struct Entry {
  std::string_view name;
  Body body;
};

template <class Body, size_t n>
Body find_entry(const Entry<Body> (&table)[n], std::string_view name) {
  for (const Entry<Body>& entry : table) {
    if (entry.name == name) return entry.body;
  }
  return nullptr;
}

}  // namespace godwit::chat::jinja
