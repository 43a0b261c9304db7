// Server-sent events with a name: one JSON document on one data line (api spec §4.1).
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace godwit::server {

// Leaves `out` inside the object: {"type":"<type>" . The caller adds members and calls end_event().
inline void begin_event(std::string& out, std::string_view type) {
  out += "event: ";
  out += type;
  out += "\ndata: {\"type\":\"";
  out += type;
  out += '"';
}
inline void end_event(std::string& out) {
  out += "}\n\n";
}

// ,"name":"text"
inline void append_text_member(std::string& out, std::string_view name, std::string_view text) {
  out += ",\"";
  out += name;
  out += "\":";
  append_json_string(out, text);
}

}  // namespace godwit::server
