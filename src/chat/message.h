// What a model's output becomes: deltas in the order they happened, and the message they add up to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace godwit::chat {

struct Delta {
  enum class Kind : uint8_t {
    reasoning,       // text
    content,         // text
    promote,         // text: all reasoning so far was the answer (api spec §3.8, thinking never closed)
    call_begin,      // call, id, name
    call_arguments,  // call, text: the next piece of the arguments' JSON
    call_end,        // call, truncated
  };
  Kind kind = Kind::content;
  std::string text;  // never empty where a kind has text
  int call = -1;     // position of the call in the response, from 0
  std::string id;
  std::string name;
  bool truncated = false;  // the output ended inside the call; its arguments were closed
};

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // always one JSON object
  bool truncated = false;
};

struct Message {
  std::string reasoning;
  std::string content;  // "" together with calls is null on the wire
  std::vector<ToolCall> tool_calls;
};

// Adds a delta to the message: streaming and not streaming differ only in who calls this, the client or we.
void apply(Message& message, const Delta& delta);

enum class FinishReason : uint8_t { stop, length, tool_calls };
const char* name_of(FinishReason reason);

struct Finish {
  FinishReason reason = FinishReason::stop;
  std::optional<std::string> stop_string;  // the stop string that matched
};

}  // namespace godwit::chat
