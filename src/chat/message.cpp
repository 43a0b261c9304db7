#include "chat/message.h"

#include "base/assert.h"

namespace godwit::chat {

void apply(Message& message, const Delta& delta) {
  using Kind = Delta::Kind;
  switch (delta.kind) {
    case Kind::reasoning:
      message.reasoning += delta.text;
      return;
    case Kind::content:
      message.content += delta.text;
      return;
    case Kind::promote:
      message.content += delta.text;
      message.reasoning.clear();
      return;
    case Kind::call_begin:
      GODWIT_ASSERT(delta.call == static_cast<int>(message.tool_calls.size()));
      message.tool_calls.push_back({delta.id, delta.name, "", false});
      return;
    case Kind::call_arguments:
      message.tool_calls.at(static_cast<size_t>(delta.call)).arguments += delta.text;
      return;
    case Kind::call_end:
      message.tool_calls.at(static_cast<size_t>(delta.call)).truncated = delta.truncated;
      return;
  }
}

const char* name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::tool_calls:
      return "tool_calls";
  }
  return "stop";
}

}  // namespace godwit::chat
