#include "server/messages_request.h"

#include "server/chat_plan.h"
#include "server/fields.h"
#include "server/messages_chat.h"
#include "server/messages_writer.h"

namespace godwit::server {
namespace {

constexpr RouteWords kWords{.route = "messages", .id_prefix = "msg_", .object = {}, .chunk = {}};

}  // namespace

Result<std::unique_ptr<GenerationPlan>> prepare_messages(const ServingModel& model,
                                                         const HttpRequest& request) {
  GODWIT_ASSIGN(const Json body, parse_body(request.body));
  GODWIT_ASSIGN(const Json chat, chat_of_messages(body));
  auto plan =
      plan_chat(model, request, chat, kWords, [](GenerationPlan& made, const ChatFacts& facts) -> MakeWriter {
        auto writer = std::make_shared<MessagesWriter>(made.response_id, facts.model_name, made.errors);
        made.wire = writer;
        return [writer](int) { return writer; };
      });
  if (!plan) return messages_error(std::move(plan.error()));
  return plan;
}

Result<Json> count_message_tokens(const ServingModel& model, const HttpRequest& request) {
  GODWIT_ASSIGN(const Json body, parse_body(request.body));
  GODWIT_ASSIGN(const Json chat, chat_of_messages(body));
  auto ids = chat_prompt_ids(model, chat);
  if (!ids) return messages_error(std::move(ids.error()));
  return Json::object({{"input_tokens", static_cast<int64_t>(ids->size())}});
}

}  // namespace godwit::server
