// The generating routes: text work on the workers, then back to the connection's thread.
#include "server/caught.h"
#include "server/chat_request.h"
#include "server/completion_request.h"
#include "server/error_response.h"
#include "server/mailbox.h"
#include "server/messages_request.h"
#include "server/responses_request.h"
#include "server/routes/handlers.h"

namespace godwit::server {
namespace {

using Plan = Result<std::unique_ptr<GenerationPlan>>;
using Prepare = Plan (*)(ServerContext&, const ServingModel&, const HttpRequest&);

// A disconnect while a worker prepares the request is noticed before the engine hears of it.
void generate(ServerContext& context, std::string_view route, HttpRequest&& request, const Writer& writer,
              Prepare prepare) {
  if (auto accepting = context.accepting(); !accepting) {
    return answer(context, route, writer, error_response(accepting.error(), error_form(request)));
  }
  const size_t bytes = request.body.size();
  auto shared = std::make_shared<HttpRequest>(std::move(request));
  prepare_on_workers(context, route, *shared, writer, bytes, [&context, route, shared, writer, prepare] {
    if (writer->gone()) return context.metrics.count_abort();
    const auto model = context.model();
    auto plan = std::make_shared<Plan>(caught([&] { return prepare(context, *model, *shared); }));
    writer->mailbox()->post([&context, route, shared, writer, model, plan] {
      if (!*plan) return answer(context, route, writer, error_response(plan->error(), error_form(*shared)));
      start_generation(std::move(*plan).value(), *model->service, context.metrics, writer);
    });
  });
}

}  // namespace

void post_chat_completions(ServerContext& context, HttpRequest&& request, const Writer& writer) {
  generate(context, "chat", std::move(request), writer,
           [](ServerContext& c, const ServingModel& m, const HttpRequest& r) -> Plan {
             return prepare_chat(m, r, c.build);
           });
}

void post_completions(ServerContext& context, HttpRequest&& request, const Writer& writer) {
  generate(context, "completions", std::move(request), writer,
           [](ServerContext& c, const ServingModel& m, const HttpRequest& r) -> Plan {
             return prepare_completion(m, r, c.build);
           });
}

void post_messages(ServerContext& context, HttpRequest&& request, const Writer& writer) {
  generate(context, "messages", std::move(request), writer,
           [](ServerContext&, const ServingModel& m, const HttpRequest& r) -> Plan {
             return prepare_messages(m, r);
           });
}

void post_responses(ServerContext& context, HttpRequest&& request, const Writer& writer) {
  generate(context, "responses", std::move(request), writer,
           [](ServerContext& c, const ServingModel& m, const HttpRequest& r) -> Plan {
             return prepare_responses(m, r, c.responses);
           });
}

}  // namespace godwit::server
