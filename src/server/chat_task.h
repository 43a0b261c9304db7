// ChatTask: a chat request in whatever dialect, read and rendered. From here on nobody knows which it was.
#pragma once

#include "server/answer_format.h"
#include "server/chat_prompt.h"
#include "server/parsed_output.h"
#include "server/sampling_fields.h"
#include "server/tool_rules.h"

namespace godwit::server {

struct ChatTask {
  CommonFields common;
  ToolRules tools;
  AnswerFormat format;
  ChatPrompt prompt;
  engine::OutputRules rules;
  bool logprobs = false;
};

// A body in OpenAI's chat form (api spec §4.5). Errors: invalid_request with the field's path.
Result<ChatTask> read_chat_task(const ServingModel& model, const Json& body);

// How choice `index` is read from its ids. `id_seed`: call ids follow from it.
ParsedOutputOptions parsed_output_options(const ServingModel& model, const ChatTask& task, int index,
                                          uint64_t id_seed);

}  // namespace godwit::server
