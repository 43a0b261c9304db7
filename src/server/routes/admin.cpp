// What an operator may do to a running server (design §12). route_table.cpp decides who that is.
#include "base/log.h"
#include "server/error_response.h"
#include "server/mailbox.h"
#include "server/routes/handlers.h"

namespace godwit::server {
namespace {

HttpResponse flushed_response(const Result<engine::Flushed>& flushed) {
  if (!flushed) return error_response(flushed.error());
  const engine::Flushed& f = *flushed;
  log_info("cache flushed: {} pages, {} snapshots; of the host tier {} pages, {} snapshots, {} bytes",
           f.pages, f.snapshots, f.host_pages, f.host_snapshots, f.host_bytes);
  HttpResponse response;
  response.body = dump_json(Json::object({{"pages", f.pages},
                                          {"snapshots", f.snapshots},
                                          {"host_pages", f.host_pages},
                                          {"host_snapshots", f.host_snapshots},
                                          {"host_bytes", f.host_bytes}}),
                            JsonStyle::compact());
  return response;
}

}  // namespace

// Answers once it is done: the next prompt finds nothing.
void post_flush_cache(ServerContext& context, HttpRequest&& request, const Writer& writer) {
  const auto loaded = context.loaded();
  if (!loaded)
    return answer(context, "flush_cache", writer, error_response(loaded.error(), error_form(request)));
  auto flushed = [&context, weak = std::weak_ptr(writer),
                  mailbox = writer->mailbox()](const Result<engine::Flushed>& done) {
    mailbox->post([&context, weak, response = flushed_response(done)]() mutable {
      if (const Writer alive = weak.lock()) answer(context, "flush_cache", alive, std::move(response));
    });
  };
  (*loaded)->service->flush_cache(std::move(flushed));
}

}  // namespace godwit::server
