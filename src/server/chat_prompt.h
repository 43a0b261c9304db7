// A conversation ▶ prompt ids.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "chat/parser.h"
#include "server/fields.h"
#include "server/serving_model.h"

namespace godwit::server {

struct ChatPrompt {
  std::vector<int32_t> ids;
  std::shared_ptr<const chat::ToolSet> tools;  // null without tools
  bool thinking = false;                       // they end inside a think block
  int64_t thinking_budget = -1;                // ids; -1: no limit
  bool include_reasoning = true;
};

// Reads messages, tools (or the older functions), every switch of thinking, and whether the last message is
// to be continued (continue_final_message, add_generation_prompt: false). What a message says is encoded as
// literal text, so that nobody writes control tokens into a prompt (design §12). Errors: invalid_request with
// the field's path; media parts are refused by name.
Result<ChatPrompt> build_chat_prompt(const ServingModel& model, const Json& body);

}  // namespace godwit::server
