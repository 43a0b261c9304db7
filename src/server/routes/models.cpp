#include <ctime>

#include "server/error_response.h"
#include "server/fields.h"
#include "server/routes/handlers.h"

namespace godwit::server {
namespace {

// Clients guess the context window from tables unless it is said here (pains O3).
Json describe_model(const ServingModel& model, const std::string& name) {
  const engine::Info& info = model.service->info();
  Json capabilities = Json::object(
      {{"tools", true},
       {"reasoning", model.control_ids.think_open >= 0},
       {"reasoning_effort", JsonArray{Json("low"), Json("high"), Json("max")}},
       {"vision", false},
       {"note", "image, video and audio parts are refused: media input is not available in this build"}});
  return Json::object({{"id", name},
                       {"object", "model"},
                       {"created", model.created},
                       {"owned_by", "godwit"},
                       {"root", model.names[0]},
                       {"parent", nullptr},
                       {"permission", JsonArray{}},
                       {"max_model_len", info.context},
                       {"context_length", info.context},
                       {"max_output_tokens", info.context - 1},
                       {"input_modalities", JsonArray{Json("text")}},
                       {"output_modalities", JsonArray{Json("text")}},
                       {"capabilities", std::move(capabilities)}});
}

// The same in Anthropic's form, for clients that say they speak its API.
Json describe_for_anthropic(const ServingModel& model, const std::string& name) {
  const std::time_t created = model.created;
  std::tm utc{};
  gmtime_r(&created, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return Json::object({{"type", "model"},
                       {"id", name},
                       {"display_name", name},
                       {"created_at", text},
                       {"max_input_tokens", model.service->info().context}});
}

bool for_anthropic(const HttpRequest& request) {
  return error_form(request).style == ErrorStyle::anthropic;
}

}  // namespace

void get_models(ServerContext& context, HttpRequest&& request, const Writer& writer) {
  const auto loaded = context.loaded();
  if (!loaded) return answer(context, "models", writer, error_response(loaded.error(), error_form(request)));
  const ServingModel& model = **loaded;
  JsonArray data;
  Json list;
  if (for_anthropic(request)) {
    for (const std::string& name : model.names) data.push_back(describe_for_anthropic(model, name));
    list = Json::object({{"data", std::move(data)},
                         {"has_more", false},
                         {"first_id", model.names.front()},
                         {"last_id", model.names.back()}});
  } else {
    for (const std::string& name : model.names) data.push_back(describe_model(model, name));
    list = Json::object({{"object", "list"}, {"data", std::move(data)}});
  }
  HttpResponse response;
  response.body = dump_json(list, JsonStyle::compact());
  answer(context, "models", writer, std::move(response));
}

void get_model(ServerContext& context, HttpRequest&& request, const Writer& writer) {
  const auto loaded = context.loaded();
  if (!loaded) return answer(context, "models", writer, error_response(loaded.error(), error_form(request)));
  const ServingModel& model = **loaded;
  const std::string name = request.path.substr(std::string_view("/v1/models/").size());
  HttpResponse response;
  if (model.serves(name)) {
    response.body =
        dump_json(for_anthropic(request) ? describe_for_anthropic(model, name) : describe_model(model, name),
                  JsonStyle::compact());
  } else {
    response = error_response(make_error(ErrorCode::model_not_found, "model",
                                         "the model {} is not served here", describe(Json(name))),
                              error_form(request));
  }
  answer(context, "models", writer, std::move(response));
}

}  // namespace godwit::server
