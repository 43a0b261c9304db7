#include "server/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iterator>

#include "base/hash.h"
#include "server/request_id.h"

namespace godwit::server {

const RouteWords kChatWords{"chat", "chatcmpl-", "chat.completion", "chat.completion.chunk"};
const RouteWords kCompletionWords{"completions", "cmpl-", "text_completion", "text_completion"};

CommonLimits common_limits(const ServingModel& model) {
  CommonLimits limits;
  limits.defaults = model.defaults;
  limits.context = model.service->info().context;
  limits.vocabulary = model.tokenizer->size();
  limits.drawn_seed = model.seed ? *model.seed : random_seed();
  return limits;
}

Result<std::string> resolve_model(const ServingModel& model, const std::string& name) {
  if (name.empty()) return model.names[0];
  if (model.serves(name)) return name;
  std::string served;
  for (const std::string& n : model.names) served += (served.empty() ? "" : ", ") + n;
  return make_error(ErrorCode::model_not_found, "model", "the model {} does not exist here; served: {}",
                    describe(Json(name)), served);
}

Result<int64_t> fit_max_tokens(const ServingModel& model, int64_t prompt_tokens, int64_t wanted,
                               ErrorStyle style) {
  const int64_t context = model.service->info().context;
  if (prompt_tokens >= context && style == ErrorStyle::anthropic) {
    return make_error(ErrorCode::context_length, "", "prompt is too long: {} tokens > {} maximum",
                      prompt_tokens, context);
  }
  if (prompt_tokens >= context) {
    const int64_t completion = std::min(std::max<int64_t>(1, wanted), context);
    return make_error(
        ErrorCode::context_length, "",
        "This model's maximum context length is {} tokens. However, you requested {} tokens ({} in the "
        "messages, {} in the completion). Please reduce the length of the messages or completion.",
        context, prompt_tokens + completion, prompt_tokens, completion);
  }
  return std::min(wanted > 0 ? wanted : model.default_max_tokens, context - prompt_tokens);
}

std::vector<int32_t> effective_stop_ids(const ServingModel& model, const engine::StopRules& stop) {
  std::vector<int32_t> ids = stop.stop_ids;
  const auto& own = model.service->info().stop_ids;
  if (!stop.ignore_eos) ids.insert(ids.end(), own.begin(), own.end());
  return ids;
}

std::unique_ptr<GenerationPlan> make_plan(const RouteWords& words, const HttpRequest& request,
                                          const CommonFields& fields) {
  auto plan = std::make_unique<GenerationPlan>();
  plan->route = words.route;
  plan->errors = error_form(request);
  plan->key = request.key;
  plan->key_salt = request.key_salt;
  plan->received_ns = request.received_ns;
  plan->response_id = random_id(words.id_prefix);
  plan->created = std::time(nullptr);
  plan->stream = fields.stream;
  plan->choices_per_prompt = fields.n;
  return plan;
}

std::shared_ptr<OpenAiWire> set_openai_wire(GenerationPlan& plan, const RouteWords& words,
                                            const CommonFields& fields, std::string_view model_name,
                                            std::string_view build) {
  std::string head = R"({"id":)";
  append_json_string(head, plan.response_id);
  fmt::format_to(std::back_inserter(head), R"(,"object":"{}","created":{},"model":)",
                 fields.stream ? words.chunk : words.object, plan.created);
  append_json_string(head, model_name);
  head += R"(,"system_fingerprint":)";
  append_json_string(head, fmt::format("godwit-{}", build.substr(0, build.find(','))));
  // The seed that was used, so that the answer can be had again.
  fmt::format_to(std::back_inserter(head), R"(,"seed":{})", static_cast<int64_t>(fields.sampling.seed));
  auto wire = std::make_shared<OpenAiWire>(std::move(head), fields.include_usage, fields.continuous_usage,
                                           plan.counted);
  plan.wire = wire;
  return wire;
}

void add_choice(GenerationPlan& plan, const CommonFields& fields, ChoiceInput choice,
                std::unique_ptr<ChoiceOutput> output) {
  if (choice.choice_index == 0) plan.counted.prompt_tokens += static_cast<int64_t>(choice.prompt.size());
  engine::Request& request = plan.requests.emplace_back();
  request.id = plan.errors.request_id;
  request.prompt = std::move(choice.prompt);
  request.sampling = fields.sampling;
  request.stop = fields.stop;
  request.stop.max_tokens = choice.max_tokens;
  request.stop.min_tokens = std::min(request.stop.min_tokens, choice.max_tokens);
  request.rules = std::move(choice.rules);
  request.prompt_logprobs = choice.prompt_logprobs;
  request.prompt_index = static_cast<uint32_t>(choice.prompt_index);
  request.choice_index = static_cast<uint32_t>(choice.choice_index);
  request.priority = fields.priority;
  if (fields.timeout_ms > 0) request.deadline_ns = plan.received_ns + fields.timeout_ms * 1'000'000;
  request.cache_salt = fields.cache_salt;
  if (plan.key_salt != 0) request.cache_salt = mix64(fields.cache_salt + plan.key_salt);
  // Here on a text worker: of a million tokens they take longer than a step. All choices of a prompt have the
  // same.
  request.block_keys = choice.choice_index > 0 ? std::prev(plan.requests.end(), 2)->block_keys
                                               : cache::block_keys(request.prompt, request.cache_salt);
  plan.outputs.push_back(std::move(output));
}

}  // namespace godwit::server
