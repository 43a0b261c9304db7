#include "server/chat_task.h"

#include <limits>

#include "server/known_fields.h"
#include "server/output_rules.h"
#include "server/plan.h"
#include "server/unsupported.h"

namespace godwit::server {
namespace {

void refuse_chat_only(Fields& fields) {
  for (const std::string_view key : {"chat_template", "documents", "echo"}) {
    const Json* value = fields.any(key);
    const bool off = value && ((value->is_bool() && !value->as_bool()) ||
                               (value->is_array() && value->as_array().empty()));
    if (value && !off) fields.refuse(key, "is not supported");
  }
}

}  // namespace

Result<ChatTask> read_chat_task(const ServingModel& model, const Json& body) {
  report_unknown_fields(body, "chat");
  Fields fields(body, "");
  ChatTask task;
  task.common = read_common_fields(fields, common_limits(model));
  task.tools = read_tool_rules(fields);
  task.format = read_answer_format(fields);
  task.logprobs = fields.boolean("logprobs").value_or(false);
  const auto top_logprobs = fields.integer("top_logprobs", 0, sample::kMaxTopLogprobs);
  if (top_logprobs && !task.logprobs) fields.refuse("top_logprobs", "is only allowed when logprobs is true");
  refuse_unsupported(fields);
  refuse_chat_only(fields);
  if (fields.error()) return *fields.error();
  if (task.logprobs) task.common.sampling.top_logprobs = static_cast<int32_t>(top_logprobs.value_or(0));

  GODWIT_ASSIGN(task.prompt, build_chat_prompt(model, body));
  const chat::ToolSet* declared = task.prompt.tools.get();
  GODWIT_TRY(check_tool_rules(task.tools, declared));
  GODWIT_ASSIGN(task.rules, make_output_rules(model, {task.format, task.tools, declared, task.prompt.thinking,
                                                      task.prompt.thinking_budget}));
  adapt_to_rules(task.rules, task.common.stop);
  if (task.tools.choice == chat::ToolChoice::none && model.control_ids.tool_call_open >= 0)
    task.common.sampling.logit_bias.emplace_back(model.control_ids.tool_call_open,
                                                 -std::numeric_limits<float>::infinity());
  return task;
}

ParsedOutputOptions parsed_output_options(const ServingModel& model, const ChatTask& task, int index,
                                          uint64_t id_seed) {
  const CommonFields& common = task.common;
  ParsedOutputOptions options;
  options.tokenizer = model.tokenizer;
  options.control_ids = model.control_ids;
  options.ids.stop_ids = effective_stop_ids(model, common.stop);
  options.ids.show_special = !common.skip_special_tokens;
  options.parser.thinking = task.prompt.thinking;
  options.parser.tools = task.prompt.tools;
  options.parser.tool_choice = task.tools.choice;
  options.parser.parallel_tool_calls = task.tools.parallel;
  options.parser.stop = common.stop_strings;
  options.parser.include_stop = common.include_stop;
  options.parser.id_seed = id_seed + static_cast<uint64_t>(index);
  options.request_stop_ids = common.stop.stop_ids;
  options.logprobs = task.logprobs;
  options.include_reasoning = task.prompt.include_reasoning;
  return options;
}

}  // namespace godwit::server
