// The two generating routes: text work on the workers, then back to the connection's thread.
#include "server/caught.h"
#include "server/chat_request.h"
#include "server/completion_request.h"
#include "server/error_response.h"
#include "server/routes/handlers.h"

namespace godwit::server {
namespace {

using Prepare = Result<std::unique_ptr<GenerationPlan>> (*)(const ServingModel&, const HttpRequest&,
                                                            std::string_view);

// A disconnect while a worker prepares the request is noticed before the engine hears of it.
void generate(ServerContext& context, std::string_view route, HttpRequest&& request, const Writer& writer,
              Prepare prepare) {
  if (auto accepting = context.accepting(); !accepting) {
    return answer(context, route, writer, error_response(accepting.error()));
  }
  const size_t bytes = request.body.size();
  auto shared = std::make_shared<HttpRequest>(std::move(request));
  prepare_on_workers(context, route, writer, bytes, [&context, route, shared, writer, prepare] {
    if (writer->gone()) return context.metrics.count_abort();
    const auto model = context.model();
    auto plan = std::make_shared<Result<std::unique_ptr<GenerationPlan>>>(
        caught([&] { return prepare(*model, *shared, context.build); }));
    writer->post([&context, route, writer, model, plan] {
      if (!*plan) return answer(context, route, writer, error_response(plan->error()));
      start_generation(std::move(*plan).value(), *model->service, context.metrics, writer);
    });
  });
}

}  // namespace

void post_chat_completions(ServerContext& context, HttpRequest&& request, const Writer& writer) {
  generate(context, "chat", std::move(request), writer, prepare_chat);
}

void post_completions(ServerContext& context, HttpRequest&& request, const Writer& writer) {
  generate(context, "completions", std::move(request), writer, prepare_completion);
}

}  // namespace godwit::server
