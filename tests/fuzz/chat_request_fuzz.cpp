// A request body: JSON, then messages, tools and thinking switches in whatever shape. Refusals must name a
// field, what is accepted must have the form that templates rely on.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/json.h"
#include "chat/effort.h"
#include "chat/normalise.h"
#include "chat/tools.h"

namespace {

using namespace godwit;

void need(bool holds) {
  if (!holds) std::abort();
}

void check_message(const Json& message) {
  const Json* role = message.find("role");
  const Json* content = message.find("content");
  need(role != nullptr && role->is_string());
  need(content != nullptr && (content->is_string() || content->is_array()));
  if (const Json* calls = message.find("tool_calls")) {
    need(!calls->as_array().empty());
    for (const Json& call : calls->as_array()) need(call.find("function")->find("arguments")->is_object());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto body = parse_json({reinterpret_cast<const char*>(data), size}, {.depth = 64, .values = 100'000});
  if (!body.ok()) {
    need(body.error().code == ErrorCode::invalid_request && !body.error().message.empty());
    return 0;
  }
  auto again = parse_json(dump_json(*body, JsonStyle::compact()));
  need(again.ok() && *again == *body);

  if (auto thinking = chat::resolve_thinking(*body, ""); !thinking.ok())
    need(!thinking.error().field.empty());
  const Json* messages = body->find("messages");
  if (messages == nullptr) return 0;
  auto conversation = chat::normalise(*messages, body->find("tools"));
  if (!conversation.ok()) {
    need(conversation.error().code == ErrorCode::invalid_request && !conversation.error().field.empty());
    return 0;
  }
  need(conversation->messages.size() == messages->as_array().size());
  for (const Json& message : conversation->messages) check_message(message);
  const chat::ToolSet tools(conversation->tools);
  for (const chat::Tool& tool : tools.all()) {
    need(!tool.name.empty());
    (void)tool.schema().member("city").types();
  }
  return 0;
}
