// Runs samples of model output through the parser. A sample is written as text with tags; "ids" are its tags
// and code points, or bytes where the text is lexed.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "chat/parser.h"
#include "chat/text_front_end.h"

namespace godwit::chat {

struct Outcome {
  std::vector<Delta> deltas;
  Message message;
  Finish finish;
  int64_t roll_backs = 0;
};

inline void collect(OutputParser& parser, Outcome& out) {
  for (Delta& delta : parser.take()) {
    apply(out.message, delta);
    out.deltas.push_back(std::move(delta));
  }
}

// The sample in pieces: each element of `pieces` is pushed, then the deltas are taken.
inline Outcome parse_pieces(const std::vector<std::string_view>& pieces, const ParserOptions& options,
                            EndReason reason = EndReason::stop) {
  Outcome out;
  TextFrontEnd front(options);
  for (std::string_view piece : pieces) {
    front.push(piece);
    collect(front.parser(), out);
  }
  front.end(reason);
  collect(front.parser(), out);
  out.finish = front.parser().finish();
  out.roll_backs = front.parser().roll_backs();
  return out;
}

inline Outcome parse(std::string_view sample, const ParserOptions& options,
                     EndReason reason = EndReason::stop) {
  return parse_pieces({sample}, options, reason);
}

inline std::vector<std::string_view> bytes_of(std::string_view sample) {
  std::vector<std::string_view> out;
  for (size_t i = 0; i < sample.size(); ++i) out.push_back(sample.substr(i, 1));
  return out;
}

inline std::shared_ptr<const ToolSet> tools_from(std::string_view json) {
  return std::make_shared<ToolSet>(parse_json(json).value().as_array());
}

// Tools of the samples: every kind of parameter once.
inline std::shared_ptr<const ToolSet> sample_tools() {
  static const auto kTools = tools_from(R"([
    {"type": "function", "function": {"name": "get", "parameters": {"type": "object", "properties": {}}}},
    {"type": "function", "function": {"name": "now"}},
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer"}, "metric": {"type": "boolean"}}}}},
    {"type": "function", "function": {"name": "write", "parameters": {"type": "object", "properties": {
      "path": {"type": "string"}, "text": {"type": "string"}, "mode": {"type": ["string", "null"]},
      "lines": {"type": "array", "items": {"type": "integer"}}, "meta": {"type": "object"}, "size": {"type": "number"}}}}}
  ])");
  return kTools;
}

inline ParserOptions thinking_with_tools() {
  return {.thinking = true, .tools = sample_tools()};
}
inline ParserOptions with_tools() {
  return {.tools = sample_tools()};
}

}  // namespace godwit::chat
