// Probes (design §12). They read counters and never enter the batch.
#include "base/clock.h"
#include "server/error_response.h"
#include "server/routes/handlers.h"

namespace godwit::server {
namespace {

void ok(ServerContext& context, std::string_view route, const Writer& writer) {
  HttpResponse response;
  response.body = R"({"status":"ok"})";
  answer(context, route, writer, std::move(response));
}

}  // namespace

// The process lives and its I/O threads answer; also while loading.
void get_livez(ServerContext& context, HttpRequest&&, const Writer& writer) {
  ok(context, "livez", writer);
}

void get_readyz(ServerContext& context, HttpRequest&&, const Writer& writer) {
  if (auto accepting = context.accepting(); !accepting) {
    return answer(context, "readyz", writer, error_response(accepting.error()));
  }
  ok(context, "readyz", writer);
}

void get_startupz(ServerContext& context, HttpRequest&&, const Writer& writer) {
  const LoadProgress progress = context.progress();
  const bool loaded = context.model() != nullptr;
  HttpResponse response;
  response.status = loaded ? 200 : 503;
  response.body =
      dump_json(Json::object({{"status", loaded                    ? "ok"
                                         : progress.failed.empty() ? "loading"
                                                                   : "failed"},
                              {"phase", loaded ? Json("ready") : Json(progress.phase)},
                              {"fraction", loaded ? 1.0 : progress.fraction},
                              {"error", progress.failed.empty() ? Json() : Json(progress.failed)}}),
                JsonStyle::compact());
  if (!loaded) response.headers.emplace_back("Retry-After", "1");
  answer(context, "startupz", writer, std::move(response));
}

// Ready, and steps make progress while work is pending: a server that accepts and then does nothing is not
// healthy (pains C2, C4).
void get_health(ServerContext& context, HttpRequest&&, const Writer& writer) {
  if (auto accepting = context.accepting(); !accepting) {
    return answer(context, "health", writer, error_response(accepting.error()));
  }
  const engine::Status status = context.model()->service->status();
  const int64_t silent_ns = SteadyClock().now_ns() - status.last_progress_ns;
  if (status.running + status.waiting > 0 && silent_ns > context.stall_ns) {
    return answer(
        context, "health", writer,
        error_response(make_error(ErrorCode::unavailable, "",
                                  "{} requests are pending and no step has finished for {:.0f} s",
                                  status.running + status.waiting, static_cast<double>(silent_ns) * 1e-9)));
  }
  ok(context, "health", writer);
}

}  // namespace godwit::server
