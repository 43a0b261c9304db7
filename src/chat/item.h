// The alphabet of the output parser (api spec §3.1): control tags, text, the end. When ids are at hand only
// ids are tags, so text that merely spells one stays text.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace godwit::chat {

enum class Control : uint8_t {
  think_open,
  think_close,
  call_open,
  call_close,
  key_open,
  key_close,
  value_open,
  value_close,
};

constexpr std::array<std::string_view, 8> kControlText = {"<think>",      "</think>",    "<tool_call>",
                                                          "</tool_call>", "<arg_key>",   "</arg_key>",
                                                          "<arg_value>",  "</arg_value>"};

constexpr std::string_view text_of(Control c) {
  return kControlText[static_cast<size_t>(c)];
}

enum class EndReason : uint8_t {
  stop,    // the model ended its turn, or a stop id of the request came
  length,  // max_tokens or the end of the context
};

// ASCII white space, the only kind the call syntax is written with.
constexpr bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

constexpr std::string_view trim_blank(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace godwit::chat
