#include "server/chat_request.h"

#include "base/hash.h"
#include "chat/prompt.h"
#include "server/chat_output.h"
#include "server/chat_prompt.h"
#include "server/fields.h"
#include "server/plan.h"
#include "server/unsupported.h"

namespace godwit::server {
namespace {

struct ToolFields {
  chat::ToolChoice choice = chat::ToolChoice::automatic;
  bool parallel = true;
};

// tool_choice, or the older function_call with the same values.
ToolFields read_tool_fields(Fields& fields) {
  ToolFields out;
  out.parallel = fields.boolean("parallel_tool_calls").value_or(true);
  const std::string_view key = fields.has("tool_choice") ? "tool_choice" : "function_call";
  const Json* choice = fields.any(key);
  if (!choice) return out;
  const Json* tools = fields.any(key == "tool_choice" ? "tools" : "functions");
  const bool declared = tools && tools->is_array() && !tools->as_array().empty();
  const std::string word = choice->is_string() ? choice->as_string() : "";
  if (word == "none") {
    out.choice = chat::ToolChoice::none;
  } else if (!declared) {
    fields.refuse(key, "is only allowed together with tools");
  } else if (word == "required" || choice->is_object()) {
    fields.refuse(key, fmt::format("{} is not supported yet; \"auto\" and \"none\" are", describe(*choice)));
  } else if (word != "auto") {
    fields.refuse(key, "must be \"auto\", \"none\", \"required\" or an object, got " + describe(*choice));
  }
  return out;
}

void refuse_chat_only(Fields& fields) {
  for (const std::string_view key : {"chat_template", "documents", "echo"}) {
    const Json* value = fields.any(key);
    const bool off = value && ((value->is_bool() && !value->as_bool()) ||
                               (value->is_array() && value->as_array().empty()));
    if (value && !off) fields.refuse(key, "is not supported");
  }
  if (fields.boolean("continue_final_message").value_or(false)) {
    fields.refuse("continue_final_message", "is not supported yet");
  }
  if (!fields.boolean("add_generation_prompt").value_or(true)) {
    fields.refuse("add_generation_prompt", "must be true; continuing the last message is not supported yet");
  }
}

}  // namespace

Result<std::unique_ptr<GenerationPlan>> prepare_chat(const ServingModel& model, const HttpRequest& request,
                                                     std::string_view build) {
  GODWIT_ASSIGN(const Json body, parse_body(request.body));
  Fields fields(body, "");
  CommonFields common = read_common_fields(fields, common_limits(model));
  const ToolFields tool_fields = read_tool_fields(fields);
  const bool logprobs = fields.boolean("logprobs").value_or(false);
  const auto top_logprobs = fields.integer("top_logprobs", 0, sample::kMaxTopLogprobs);
  if (top_logprobs && !logprobs) fields.refuse("top_logprobs", "is only allowed when logprobs is true");
  refuse_unsupported(fields);
  refuse_chat_only(fields);
  if (fields.error()) return *fields.error();
  if (logprobs) common.sampling.top_logprobs = static_cast<int32_t>(top_logprobs.value_or(0));

  GODWIT_ASSIGN(const std::string name, resolve_model(model, common.model));
  GODWIT_ASSIGN(ChatPrompt prompt, build_chat_prompt(model, body));
  if (tool_fields.choice == chat::ToolChoice::none && model.control_ids.tool_call_open >= 0) {
    common.sampling.logit_bias.emplace_back(model.control_ids.tool_call_open, -100.0f);
  }
  auto plan = make_plan(kChatWords, request, common, name, build);
  GODWIT_ASSIGN(const int64_t max_tokens,
                fit_max_tokens(model, static_cast<int64_t>(prompt.ids.size()), common.stop.max_tokens));
  const bool thinking = chat::starts_thinking(prompt.ids, model.control_ids);
  for (int k = 0; k < common.n; ++k) {
    ChatOutputOptions options;
    options.index = k;
    options.tokenizer = model.tokenizer;
    options.control_ids = model.control_ids;
    options.ids.stop_ids = effective_stop_ids(model, common.stop);
    options.ids.show_special = !common.skip_special_tokens;
    options.parser.thinking = thinking;
    options.parser.tools = prompt.tools;
    options.parser.tool_choice = tool_fields.choice;
    options.parser.parallel_tool_calls = tool_fields.parallel;
    options.parser.stop = common.stop_strings;
    options.parser.include_stop = common.include_stop;
    // From the response's id, not from the seed: two turns with one seed must not have calls with equal ids.
    options.parser.id_seed = hash_bytes(plan->body_head) + static_cast<uint64_t>(k);
    options.request_stop_ids = common.stop.stop_ids;
    options.logprobs = logprobs;
    options.include_reasoning = prompt.include_reasoning;
    add_choice(*plan, common, prompt.ids, max_tokens, 0, k,
               std::make_unique<ChatOutput>(std::move(options), plan->frame));
  }
  return plan;
}

Result<std::vector<int32_t>> chat_prompt_ids(const ServingModel& model, const Json& body) {
  GODWIT_ASSIGN(ChatPrompt prompt, build_chat_prompt(model, body));
  return std::move(prompt.ids);
}

}  // namespace godwit::server
