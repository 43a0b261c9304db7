#include "server/chat_plan.h"

#include "base/hash.h"

namespace godwit::server {

Result<std::unique_ptr<GenerationPlan>> plan_chat(const ServingModel& model, const HttpRequest& request,
                                                  const Json& body, const RouteWords& words,
                                                  const SetWire& set_wire) {
  GODWIT_ASSIGN(const ChatTask task, read_chat_task(model, body));
  GODWIT_ASSIGN(const std::string name, resolve_model(model, task.common.model));
  const std::vector<int32_t>& prompt = task.prompt.ids;
  auto plan = make_plan(words, request, task.common);
  GODWIT_ASSIGN(const int64_t max_tokens, fit_max_tokens(model, static_cast<int64_t>(prompt.size()),
                                                         task.common.stop.max_tokens, plan->errors.style));
  const MakeWriter make_writer =
      set_wire(*plan, {.task = task, .model_name = name, .max_tokens = max_tokens});
  // From the response's id, not from the seed: two turns with one seed must not have calls with equal ids.
  const uint64_t id_seed = hash_bytes(plan->response_id);
  for (int k = 0; k < task.common.n; ++k) {
    add_choice(
        *plan, task.common, {prompt, max_tokens, 0, k, task.rules},
        std::make_unique<ParsedOutput>(parsed_output_options(model, task, k, id_seed), make_writer(k)));
  }
  return plan;
}

Result<std::vector<int32_t>> chat_prompt_ids(const ServingModel& model, const Json& body) {
  GODWIT_ASSIGN(ChatPrompt prompt, build_chat_prompt(model, body));
  return std::move(prompt.ids);
}

}  // namespace godwit::server
