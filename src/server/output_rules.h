// AnswerFormat and ToolRules ▶ what the engine holds the output to. Runs on a text worker.
#pragma once

#include "engine/request.h"
#include "server/answer_format.h"
#include "server/serving_model.h"
#include "server/tool_rules.h"

namespace godwit::server {

struct OutputWish {
  const AnswerFormat& format;
  const ToolRules& tools;
  const chat::ToolSet* declared = nullptr;  // null: no tools
  bool thinking = false;                    // the prompt ends inside a think block
  int64_t thinking_budget = -1;
};

// Compiles a grammar where one is asked for, or takes it from the model's cache. Errors: invalid_request; the
// message names the keyword and its place, `field` where the schema was sent.
Result<engine::OutputRules> make_output_rules(const ServingModel& model, const OutputWish& wish);

// What sampling and stopping must do for the rules: with a grammar the output ends where the answer is
// complete, so ignore_eos can only put the end off as long as the answer may go on.
void adapt_to_rules(const engine::OutputRules& rules, engine::StopRules& stop);

}  // namespace godwit::server
