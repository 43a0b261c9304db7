#include <memory>

#include "server/caught.h"
#include "server/error_response.h"
#include "server/mailbox.h"
#include "server/messages_request.h"
#include "server/routes/handlers.h"
#include "server/tokenize_request.h"

namespace godwit::server {
namespace {

using TextWork = Result<Json> (*)(const ServingModel&, const HttpRequest&);

void run(ServerContext& context, std::string_view route, HttpRequest&& request, const Writer& writer,
         TextWork work) {
  auto loaded = context.loaded();
  if (!loaded) return answer(context, route, writer, error_response(loaded.error(), error_form(request)));
  const size_t bytes = request.body.size();
  auto shared = std::make_shared<HttpRequest>(std::move(request));
  prepare_on_workers(context, route, *shared, writer, bytes,
                     [&context, route, shared, writer, work, model = std::move(*loaded)] {
                       auto text = caught([&]() -> Result<std::string> {
                         GODWIT_ASSIGN(const Json result, work(*model, *shared));
                         return dump_json(result, JsonStyle::compact());
                       });
                       auto response = std::make_shared<HttpResponse>();
                       if (text) {
                         response->body = std::move(*text);
                       } else {
                         *response = error_response(text.error(), error_form(*shared));
                       }
                       writer->mailbox()->post([&context, route, writer, response] {
                         answer(context, route, writer, std::move(*response));
                       });
                     });
}

}  // namespace

void post_tokenize(ServerContext& context, HttpRequest&& request, const Writer& writer) {
  run(context, "tokenize", std::move(request), writer, tokenize_text);
}

void post_detokenize(ServerContext& context, HttpRequest&& request, const Writer& writer) {
  run(context, "detokenize", std::move(request), writer, detokenize_ids);
}

// What lm-eval's remote tokenizer asks for (api spec §4.8): the special tokens and the chat template.
void get_tokenizer_info(ServerContext& context, HttpRequest&& request, const Writer& writer) {
  constexpr std::string_view kRoute = "tokenizer_info";
  const auto loaded = context.loaded();
  if (!loaded) return answer(context, kRoute, writer, error_response(loaded.error(), error_form(request)));
  const ServingModel& model = **loaded;
  JsonObject info;
  for (const std::string_view name : {"bos_token", "eos_token", "pad_token"}) info.set(name, Json());
  for (const auto& [name, token] : model.chat_template->special_tokens()) info.set(name, token);
  info.set("chat_template", model.chat_template->source());
  info.set("model_max_length", model.service->info().context);
  info.set("vocab_size", model.tokenizer->size());
  HttpResponse response;
  response.body = dump_json(Json(std::move(info)), JsonStyle::compact());
  answer(context, kRoute, writer, std::move(response));
}

void post_count_tokens(ServerContext& context, HttpRequest&& request, const Writer& writer) {
  run(context, "count_tokens", std::move(request), writer, count_message_tokens);
}

}  // namespace godwit::server
