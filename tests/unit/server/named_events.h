// Server-sent events that carry a name, as /v1/messages and /v1/responses send them.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "harness.h"

namespace godwit::server::testing {

// The data of each event, whose "type" must be the event's name. Comments are skipped.
inline std::vector<Json> named_events(const Answer& answer) {
  std::vector<Json> out;
  size_t at = 0;
  for (size_t end; (end = answer.body.find("\n\n", at)) != std::string::npos; at = end + 2) {
    const std::string block = answer.body.substr(at, end - at);
    if (block.starts_with(":")) continue;
    const size_t line = block.find('\n');
    EXPECT_TRUE(block.starts_with("event: ") && line != block.npos) << block;
    if (line == block.npos) continue;
    const std::string data = block.substr(line + 1);
    EXPECT_TRUE(data.starts_with("data: ") && data.find('\n') == data.npos) << block;  // C44
    auto parsed = parse_json(data.substr(6));
    EXPECT_TRUE(parsed.ok()) << data;
    if (!parsed.ok()) continue;
    EXPECT_EQ(parsed->find("type")->as_string(), block.substr(7, line - 7));
    out.push_back(std::move(*parsed));
  }
  EXPECT_EQ(at, answer.body.size()) << "the stream ends inside an event";
  return out;
}

inline const std::string& type_of(const Json& event) {
  return event.find("type")->as_string();
}
inline std::string text_at(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value && value->is_string() ? value->as_string() : "";
}

// Outputs of a model that differ in what the protocols make of them.
inline const std::vector<std::string>& output_samples() {
  static const std::vector<std::string> samples = {
      "I think so.</think>The answer is 42.<|user|>",
      "</think>Héllo wörld ✓<|user|>",
      "hm</think><tool_call>get_weather<arg_key>city</arg_key><arg_value>Zürich \"x\"</arg_value>"
      "<arg_key>days</arg_key><arg_value>3</arg_value></tool_call><tool_call>get_weather</tool_call>"
      "<|observation|>",
      "now<tool_call>get_weather</tool_call>and then some text<|user|>",
      "hm</think>Let me see.<tool_call>no_such_tool<arg_key>a</arg_key></tool_call><|user|>",
      "</think><|user|>",
  };
  return samples;
}

}  // namespace godwit::server::testing
