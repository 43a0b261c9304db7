#include "server/chat_request.h"

#include "server/chat_plan.h"
#include "server/chat_writer.h"
#include "server/fields.h"

namespace godwit::server {

Result<std::unique_ptr<GenerationPlan>> prepare_chat(const ServingModel& model, const HttpRequest& request,
                                                     std::string_view build) {
  GODWIT_ASSIGN(const Json body, parse_body(request.body));
  return plan_chat(model, request, body, kChatWords, [&](GenerationPlan& plan, const ChatFacts& facts) {
    auto wire = set_openai_wire(plan, kChatWords, facts.task.common, facts.model_name, build);
    ChatWriter::Options options{.tokenizer = model.tokenizer,
                                .logprobs = facts.task.logprobs,
                                .include_reasoning = facts.task.prompt.include_reasoning};
    return [wire, options](int index) mutable -> std::shared_ptr<DeltaWriter> {
      options.index = index;
      return std::make_shared<ChatWriter>(options, wire->frame());
    };
  });
}

}  // namespace godwit::server
