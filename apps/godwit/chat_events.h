// From the bytes of an OpenAI chat stream (api spec §3.6) to the pieces of one answer.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace godwit {

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text
};

// What has been received of one answer.
struct ChatAnswer {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> tool_calls;
  std::string finish_reason;                                            // empty until the last chunk
  std::string error;                                                    // of an error event
  bool done = false;                                                    // "[DONE]" was seen
  int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;  // of the usage chunk

  Json as_message() const;  // to send back as history
};

class ChatEvents {
 public:
  struct Handlers {
    std::function<void(std::string_view)> on_reasoning, on_content;
  };
  explicit ChatEvents(Handlers handlers) : handlers_(std::move(handlers)) {}

  // Bytes of an SSE body, cut anywhere.
  void feed(std::string_view bytes);
  const ChatAnswer& answer() const { return answer_; }

 private:
  void line(std::string_view text);
  void chunk(const Json& json);
  void delta(const Json& json);

  Handlers handlers_;
  std::string partial_;  // a line without its end
  ChatAnswer answer_;
};

// The message of an OpenAI error body, or the body itself.
std::string error_text(std::string_view body);

}  // namespace godwit
