#include "server/chat_request.h"

#include "base/hash.h"
#include "server/chat_task.h"
#include "server/plan.h"

namespace godwit::server {

Result<std::unique_ptr<GenerationPlan>> prepare_chat(const ServingModel& model, const HttpRequest& request,
                                                     std::string_view build) {
  GODWIT_ASSIGN(const Json body, parse_body(request.body));
  GODWIT_ASSIGN(const ChatTask task, read_chat_task(model, body));
  GODWIT_ASSIGN(const std::string name, resolve_model(model, task.common.model));
  const std::vector<int32_t>& prompt = task.prompt.ids;
  GODWIT_ASSIGN(const int64_t max_tokens,
                fit_max_tokens(model, static_cast<int64_t>(prompt.size()), task.common.stop.max_tokens));
  auto plan = make_plan(kChatWords, request, task.common, name, build);
  // From the response's id, not from the seed: two turns with one seed must not have calls with equal ids.
  const uint64_t id_seed = hash_bytes(plan->body_head);
  for (int k = 0; k < task.common.n; ++k)
    add_choice(*plan, task.common, {prompt, max_tokens, 0, k, task.rules},
               std::make_unique<ChatOutput>(chat_output_options(model, task, k, id_seed), plan->frame));
  return plan;
}

Result<std::vector<int32_t>> chat_prompt_ids(const ServingModel& model, const Json& body) {
  GODWIT_ASSIGN(ChatPrompt prompt, build_chat_prompt(model, body));
  return std::move(prompt.ids);
}

}  // namespace godwit::server
