// Stored responses (api spec §4.10).
#include "server/error_response.h"
#include "server/fields.h"
#include "server/routes/handlers.h"

namespace godwit::server {
namespace {

std::string id_in(const HttpRequest& request) {
  return request.path.substr(std::string_view("/v1/responses/").size());
}

HttpResponse not_stored(const HttpRequest& request) {
  return error_response(make_error(ErrorCode::not_found, "response_id",
                                   "the response {} is not stored here: it was never stored, has been "
                                   "deleted, or had to make room",
                                   describe(Json(id_in(request)))));
}

}  // namespace

void get_response(ServerContext& context, HttpRequest&& request, const Writer& writer) {
  const auto found = context.responses.find(id_in(request), request.key);
  HttpResponse response;
  if (found) {
    response.body = found->body;
  } else {
    response = not_stored(request);
  }
  answer(context, "responses", writer, std::move(response));
}

void delete_response(ServerContext& context, HttpRequest&& request, const Writer& writer) {
  HttpResponse response;
  if (context.responses.erase(id_in(request), request.key)) {
    response.body =
        dump_json(Json::object({{"id", id_in(request)}, {"object", "response.deleted"}, {"deleted", true}}),
                  JsonStyle::compact());
  } else {
    response = not_stored(request);
  }
  answer(context, "responses", writer, std::move(response));
}

}  // namespace godwit::server
